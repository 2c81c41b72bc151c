"""The command `recheck`: a report's parity, run again on this machine."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..given_paths import GivenPath
from ..output import check_json_file, json_option, write_json
from ..words import printable
from .command_report import signers_option

if TYPE_CHECKING:
    from .recheck_record import Change, Recheck, ShapeRecheck
    from .verification import Verification


@click.command(epilog="Example: python -m recompute_core recheck decision --signers signers.json")
@click.argument("bundle", type=GivenPath(), metavar="BUNDLE")
@signers_option
@click.option("--shape", metavar="KEY", help="At this shape alone, such as 'T=512 B=8'.")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="What names this machine: threads, device or workload.images; may be repeated.",
)
@click.option("--history", "is_history", is_flag=True, help="List the earlier rechecks; run nothing.")
@json_option
def recheck(
    bundle: Path,
    signers: Path | None,
    shape: str | None,
    settings: tuple[str, ...],
    is_history: bool,
    json_file: str | None,
) -> None:
    """Verify a signed decision, then run its parity again with this machine's libraries and device.

    The exit code is 0 when parity holds, even if libraries have drifted; 1 when it does not, or when the
    report is refused; 3 when nobody can tell, as what runs here is not what was reported.
    """
    if is_history:
        if shape is not None or settings or signers is not None:
            raise InputError("--history runs nothing; give it BUNDLE alone")
        check_json_file(json_file)
        _list(bundle, json_file)
        return
    from ..terminal import steps_progress
    from . import recheck as room
    from .signers import load_signers, signers_file

    trusted = load_signers(signers_file(signers), may_be_missing=signers is None)
    check_json_file(json_file)
    believed = room.verified(bundle, trusted)
    if not isinstance(believed, room.Believed):
        _refuse(believed, json_file)
        return
    warnings: list[str] = []
    with steps_progress() as tell:
        found = room.recheck(believed, shape, settings, tell=tell, warn=warnings.append)
    for warning in warnings:
        click.echo(printable(f"warning: {warning}"), err=True)
    if json_file != "-":
        for line in _lines(found):
            click.echo(printable(line))
    write_json(json_file, found.document())
    sys.exit(found.exit_code)


def _refuse(verification: "Verification", json_file: str | None) -> None:
    """Say why a report is not believed; nothing of it was run."""
    if json_file != "-":
        click.echo(printable(f"{verification.sentence} Nothing was run."))
    document = {
        "schema": "recompute-recheck/1",
        "outcome": "refused",
        "exit_code": 1,
        "code": verification.failures[0].code,
        "sentence": verification.sentence,
        "verification": verification.document(),
    }
    write_json(json_file, document)
    sys.exit(1)


def _list(path: Path, json_file: str | None) -> None:
    """`recompute-recheck-history/1`: our own records of this statement, whoever signed it."""
    from ..studies.store import home_folder
    from .bundle import REPORT, read_bundle
    from .recheck_history import history, statement_digest
    from .recheck_record import WORDS
    from .refusal import Untrusted

    try:
        statement = statement_digest(read_bundle(path).files[REPORT])
    except Untrusted as error:
        raise InputError(f"{path}: {error}") from None
    found = history(home_folder(), statement)
    if json_file != "-":
        for one in found:
            click.echo(printable(f"{one.checked_at}  {WORDS[one.outcome]}: {one.sentence}"))
        if not found:
            click.echo("No rechecks yet.")
    document = {
        "schema": "recompute-recheck-history/1",
        "statement": statement,
        "rechecks": [one.document() for one in found],
    }
    write_json(json_file, document)


# --- words -----------------------------------------------------------------------------------

_EFFECTS = {
    "none": "",
    "drift": "may move the last bits",
    "another": "another update than the reported one",
}


def _lines(found: "Recheck") -> Iterator[str]:
    yield f"Signed by {found.signer.name}: {found.plan} of study {found.study_id}."
    changes = found.all_changes
    yield "Changed since the report:" if changes else "Nothing that is recorded has changed."
    for change in changes:
        effect = _EFFECTS[change.effect]
        yield f"  {change.what}: {_change(change)}" + (f"  ({effect})" if effect else "")
    for shape in found.shapes:
        yield from ("", shape.shape_key)
        yield from _shape(shape, found.environment.get("ranks", 1))
    yield ""
    yield found.sentence


def _change(change: "Change") -> str:
    """Old and new; digests and commits cut to what tells them apart."""
    is_digest = change.about in ("code", "data")
    old, new = (_value(value, is_digest) for value in (change.old, change.new))
    return f"{old} before, {new} now"


def _value(value: Any, is_digest: bool) -> str:
    if value is None:
        return "none"
    text = str(value).removeprefix("sha256:")
    return f"{text[:12]}…" if is_digest and len(text) >= 40 else text


def _shape(one: "ShapeRecheck", ranks: int) -> Iterator[str]:
    from ..gates import gap_words
    from .recheck_outcome import drift_words

    drift, parity = one.drift, one.parity
    if drift is not None:
        if drift.bitwise:
            yield "  reference  bitwise the reported one"
        elif drift.off is None:
            yield "  reference  not bitwise the reported one; the report says no more of it"
        else:
            most = f", most in {drift_words(drift)}" if drift.worst else ""
            yield f"  reference  {drift.off} of {drift.tensors} tensors drifted{most}"
        yield f"  noise      {_noise(one.noise_floor, ranks)}"
    if one.canary is not None:
        yield "  canary     " + ("caught" if one.canary.caught else "MISSED")
    if parity is not None:
        if parity.passed and parity.bitwise:
            yield f"  parity     holds, all {parity.tensors} tensors bitwise"
        elif not parity.failed:
            yield f"  parity     holds, largest relative gap {parity.largest_relative_gap:.2g}"
        else:
            worst = gap_words(parity.worst[0])
            yield f"  parity     {parity.failed} of {parity.tensors} tensors are off, most {worst}"
        if parity.rollback is not None:
            is_plain = parity.rollback.is_plain(one.noise_floor)
            yield "  rollback   " + ("plain is plain again" if is_plain else "PLAIN IS NOT BACK")
    yield f"  {one.sentence}"


def _noise(floor: float | None, ranks: int) -> str:
    """What plain was compared with, and how far it is from that."""
    if floor is None:
        return "not run or not to be compared"
    if floor == 0:
        return (
            "plain repeats itself bitwise" if ranks < 2 else f"{ranks} ranks equal one process bitwise"
        )
    what = "plain differs from plain" if ranks < 2 else f"{ranks} ranks differ from one process"
    return f"{what}, largest relative gap {floor:.2g}"
