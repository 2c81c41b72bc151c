"""The commands `report` and `verify`: a decision signed, and a signed decision checked."""

import shlex
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..command_gate import set_thresholds, thresholds_of
from ..errors import InputError
from ..given_paths import GivenPath
from ..output import EXIT_CODES, check_json_file, json_option, write_json
from ..words import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .evidence import Evidence
    from .keys import PrivateKey, PublicKey
    from .release import Released, ReleasedSupplied
    from .statement import Decision


signers_option = click.option(
    "--signers",
    type=GivenPath(),
    metavar="FILE",
    help="Whom you trust; signers.json in RECOMPUTE_HOME unless given. 'keys trust' writes it.",
)


@click.command(
    epilog="Example: python -m recompute_core report 20261129-163455-3f9c --candidate every-block "
    "--key ~/.config/recompute/signer.key --out decision"
)
@click.argument("study", metavar="STUDY")
@click.option("--candidate", "plan", metavar="PLAN", help="A plan of the study.")
@click.option("--key", required=True, type=GivenPath(), metavar="FILE", help="Your private key.")
@click.option(
    "--out",
    required=True,
    type=GivenPath(),
    metavar="DIR",
    help="A new folder, or a new .zip.",
)
@click.option(
    "--passphrase-fd",
    "descriptor",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the key's passphrase from this file descriptor; else RECOMPUTE_KEY_PASSPHRASE, else a "
    "prompt.",
)
@set_thresholds
@json_option
def report(
    study: str,
    plan: str | None,
    key: Path,
    out: Path,
    descriptor: int | None,
    settings: tuple[str, ...],
    json_file: str | None,
) -> None:
    """Sign the decision on a plan, with all that it follows from, for somebody who does not trust you.

    STUDY may be a file instead, .json or .csv, of measurements that you took elsewhere (see 'gate'): the
    report then says everywhere that its figures were supplied.

    The exit code is that of the verdict: 0 adopt, 1 keep the original, 3 undecided.
    """
    from .bundle import check_new_bundle, write_bundle
    from .keys import check_key_file, load_key
    from .passphrase import passphrase
    from .refusal import Untrusted

    evidence, sign = _asked(study, plan, settings)
    check_json_file(json_file)
    check_new_bundle(out)
    check_key_file(key)  # before anybody types a passphrase
    private = load_key(key, passphrase(descriptor))
    try:
        released = sign(evidence, private)
    except Untrusted as error:
        raise InputError(f"study {study} cannot be reported: {error}") from None
    write_bundle(out, released.bundle)
    document = _written(out, released, private.public_key())
    if json_file != "-":
        said = released.predicate
        click.echo(f"{out}: {len(released.bundle.files)} files, {document['bytes']} bytes")
        click.echo(f"signed with {document['signer']['fingerprint']}")
        for name, why in document["not_recorded"].items():
            click.echo(f"not in it: {name}: {why}")
        click.echo(f"\n{printable(said.sentence)}")
        _say_reruns(said)
    write_json(json_file, document)
    sys.exit(EXIT_CODES[released.predicate.verdict])


def _asked(
    study: str, plan: str | None, settings: tuple[str, ...]
) -> tuple["Evidence", "Callable[[Evidence, PrivateKey], Released | ReleasedSupplied]"]:
    """The evidence, and what makes a report of it: of a study, or of a file of measurements."""
    from .release import release, release_supplied

    if Path(study).suffix.lower() in (".json", ".csv"):
        from ..supplied import evidence_of_file

        if plan is not None:
            raise InputError("--candidate: measurements name their plan themselves; leave it out")
        return evidence_of_file(Path(study), thresholds_of(settings)), release_supplied
    from ..studies.store import Store
    from .evidence import gather

    if settings:
        raise InputError("--set: the thresholds of a study were declared before it ran")
    if plan is None:
        raise InputError("--candidate PLAN: say which plan of the study; or give a file of measurements")
    return gather(Store(), study, plan), release


def _written(out: Path, released: "Released | ReleasedSupplied", key: "PublicKey") -> dict[str, Any]:
    """`recompute-report/1`."""
    from .keys import fingerprint, kind_of
    from .predicate import Predicate
    from .statement import digests_of

    said, files = released.predicate, released.bundle.files
    study = said if isinstance(said, Predicate) else None
    return {
        "schema": "recompute-report/1",
        "kind": "measured" if study else "supplied",
        "study_id": study and study.study.id,
        "plan": said.plan,
        "plan_hash": study and study.plan_hash,
        "verdict": said.verdict,
        "sentence": said.sentence,
        "out": str(out),
        "bytes": sum(map(len, files.values())),
        "files": digests_of(files),
        "not_recorded": study.not_recorded if study else {},
        "signer": {"fingerprint": fingerprint(key), "kind": kind_of(key)},
    }


@click.command(epilog="Example: python -m recompute_core verify decision --signers signers.json")
@click.argument("bundle", type=GivenPath(), metavar="BUNDLE")
@signers_option
@json_option
def verify(bundle: Path, signers: Path | None, json_file: str | None) -> None:
    """Check a signed decision, a folder or a .zip, and compute every gate again from its samples.

    The exit code is 0 when it verifies, whatever the verdict, and 1 when it is refused. Where no signers
    file was ever written, nobody is trusted, and every report is refused.
    """
    from .signers import load_signers, signers_file
    from .verify import verify_path

    trusted = load_signers(signers_file(signers), may_be_missing=signers is None)
    check_json_file(json_file)
    found = verify_path(bundle, trusted, datetime.now(UTC).replace(microsecond=0))
    document = found.document()
    is_unpacked = found.checks[0].outcome == "pass"
    if json_file != "-" and is_unpacked:
        words = {"pass": "ok", "fail": "FAIL", "not_reached": "-"}
        for check in found.checks:
            click.echo(
                f"{words[check.outcome]:4}  {check.id.partition(':')[0]:12} {printable(check.sentence)}"
            )
        for warning in found.warnings:
            click.echo(f"note: {printable(warning)}")
        click.echo(f"\n{printable(found.sentence)}")
        _say_reruns(found.decision)
    elif json_file != "-":
        is_none = document["code"] in ("not-a-zip", "not-a-report")
        hint = " Give a report's folder, or its .zip." if is_none else ""
        click.echo(printable(found.sentence) + hint)
    if json_file != "-" and document["code"] == "unknown-signer":
        click.echo(printable(_how_to_trust(bundle, signers)))
        click.echo("It asks for your word; where there is no terminal, give it as --yes FINGERPRINT.")
    write_json(json_file, document)
    sys.exit(0 if found.verified else 1)


def _say_reruns(said: "Decision | None") -> None:
    """Which studies the one of a report repeats, after their results were seen."""
    from ..rerun import said_of_reruns
    from .predicate import Predicate

    if isinstance(said, Predicate):
        for sentence in said_of_reruns(said.declared.follows, said.declared.thresholds):
            click.echo(printable(sentence))


def _how_to_trust(bundle: Path, signers: Path | None) -> str:
    """What to run once the fingerprint was compared."""
    key = bundle / "public_key.pem" if bundle.is_dir() else Path("public_key.pem")
    where = "" if signers is None else f" --signers {shlex.quote(str(signers))}"
    return (
        "Anybody can sign. Ask the signer for their fingerprint over another channel; if it is this: "
        f"python -m recompute_core keys trust {shlex.quote(str(key))} --name WHO{where}"
        + ("" if bundle.is_dir() else " (the file is in the .zip)")
    )
