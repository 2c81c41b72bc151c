"""The command `compare`: two studies next to each other, of this store or from files."""

from pathlib import Path

import click

from ..output import check_json_file, json_option, write_json
from ..output import show as print_table
from ..results import StudyResult


@click.command(
    epilog="Example: python -m recompute_core compare 20261129-163455-3f9c other-machine.json"
)
@click.argument("a", metavar="A")
@click.argument("b", metavar="B")
@json_option
def compare(a: str, b: str, json_file: str | None) -> None:
    """Set study B against study A: only what differs, and by how much.

    Each is the id of a study here, or a .json file that `study --json` has written, maybe on another
    machine. The exit code is 0 whatever they come to.
    """
    from ..terminal import comparison_table, differences_table
    from .compare import compare as compared
    from .sentences import intervals_sentence

    check_json_file(json_file)
    first, second = _result(a), _result(b)
    found = compared(first, second, (_is_file(a), _is_file(b)))
    if json_file != "-":
        for line in (*found.sentences, *found.cautions):
            click.echo(line)
        if found.differences:
            print_table(differences_table(found))
        if found.pairings:
            print_table(comparison_table(found))
            click.echo("Differences are B minus A, with their intervals. MB = 10^6 bytes.")
            click.echo(intervals_sentence(found.pairings))
    write_json(json_file, found.model_dump(mode="json", by_alias=True))


def _is_file(named: str) -> bool:
    return named.endswith(".json") or "/" in named


def _result(named: str) -> StudyResult:
    """A study of the store, or one read from a file; raises InputError for neither."""
    from ..studies.assemble import assemble
    from ..studies.store import Store
    from .imported import read_file

    if _is_file(named):
        return read_file(Path(named))
    store = Store()
    return assemble(store.study(named), store.cells(named))
