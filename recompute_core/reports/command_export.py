"""The command `export`: a candidate of a study as another trainer takes it."""

from pathlib import Path

import click

from ..errors import InputError
from ..given_paths import GivenPath
from ..output import check_json_file, json_option, write_json
from ..plans.export import TARGETS, Target
from ..plans.export.exported import module_in
from ..writing import check_writable, write_whole


@click.command(
    name="export",
    epilog="Example: python -m recompute_core export 20261129-163455-3f9c --candidate every-block "
    "--to torch --out plan.py",
)
@click.argument("study", metavar="STUDY")
@click.option("--candidate", "plan", required=True, metavar="PLAN", help="A plan of the study.")
@click.option("--to", required=True, type=click.Choice(TARGETS), help="Who is to take it.")
@click.option("--out", type=GivenPath(), metavar="FILE", help="Where to; else standard output.")
@json_option
def export_command(study: str, plan: str, to: Target, out: Path | None, json_file: str | None) -> None:
    """Write a plan as a trainer takes it, and say what that trainer cannot express.

    torch: a module of its own with apply_plan(model) and remove_plan(model), which needs torch alone
    and does all that the plan does. transformers, torchtitan, megatron: the nearest settings that they
    have, and what those cost by our estimate.
    """
    from ..exporting import document, export, warning
    from ..studies.store import Store

    store = Store()
    row = store.study(study)
    check_json_file(json_file)
    if out is not None:
        _check(out)
    said = warning(row, store.cells(study), plan)
    exported = export(row, plan, to, said, module_in(out) if out else None)
    if said is not None:
        click.echo(f"warning: {said}", err=True)
    for line in (*exported.cannot, *exported.notes):
        click.echo(line, err=True)
    if out is not None:
        try:
            write_whole(out, exported.text)
        except OSError as error:
            raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
        click.echo(f"{out}: written", err=True)
    elif json_file != "-":
        click.echo(exported.text, nl=False)
    write_json(json_file, document(row, plan, to, exported, said))


def _check(out: Path) -> None:
    """Find out before the search that the result cannot be written, or that something is there."""
    if out.is_file():
        raise InputError(f"--out {out}: exists; give another name")
    try:
        check_writable(out)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
