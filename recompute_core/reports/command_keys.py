"""`keys`: the keys that sign reports, and the signers that a verifier trusts."""

import sys
from datetime import UTC, date, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import InputError
from ..given_paths import GivenPath
from ..output import check_json_file, json_option, show, write_json
from ..words import printable
from ..writing import write_whole

if TYPE_CHECKING:
    from .keys import PublicKey
    from .signers import Signer

_passphrase_option = click.option(
    "--passphrase-fd",
    "descriptor",
    type=click.IntRange(min=0),
    metavar="N",
    help="Read the passphrase from this file descriptor; else RECOMPUTE_KEY_PASSPHRASE, else a prompt.",
)
_signers_option = click.option(
    "--signers",
    type=GivenPath(),
    metavar="FILE",
    help="Your signers file; signers.json in RECOMPUTE_HOME unless given.",
)


@click.group()
def keys() -> None:
    """Make keys that sign reports, and say whose reports you trust."""


@keys.command(epilog="Example: python -m recompute_core keys new --out ~/.config/recompute/signer.key")
@click.option("--out", required=True, type=GivenPath(), metavar="FILE", help="New file.")
@click.option(
    "--kind",
    type=click.Choice(["p256", "ed25519"]),
    default="p256",
    show_default=True,
    help="ECDSA on P-256, or Ed25519.",
)
@_passphrase_option
@json_option
def new(out: Path, kind: Any, descriptor: int | None, json_file: str | None) -> None:
    """Make a key: FILE, encrypted, which only you can read, and FILE.pub.pem for those who verify."""
    from .keys import check_new_file, new_key, public_pem, write_key
    from .passphrase import passphrase

    check_new_file(out)
    public_file = out.with_name(out.name + ".pub.pem")
    check_new_file(public_file)
    check_json_file(json_file)
    key = new_key(kind)
    write_key(out, key, passphrase(descriptor, new=True))
    try:
        write_whole(public_file, public_pem(key.public_key()))
    except BaseException as error:
        out.unlink()  # a key whose public half is nowhere is of no use
        if not isinstance(error, OSError):
            raise
        raise InputError(f"{public_file}: cannot be written: {error.strerror}") from None
    document = {"file": str(out), "public_file": str(public_file)} | _about(key.public_key())
    if json_file != "-":
        click.echo(f"{out}: the private key, encrypted; keep it, and back it up with its passphrase")
        click.echo(f"{public_file}: the public key, for those who verify")
        click.echo(f"fingerprint {document['fingerprint']}")
    write_json(json_file, document)


@keys.command("show", epilog="Example: python -m recompute_core keys show signer.key.pub.pem")
@click.argument("file", type=GivenPath(), metavar="FILE_OR_PUBLIC")
@_passphrase_option
@json_option
def show_key(file: Path, descriptor: int | None, json_file: str | None) -> None:
    """Print a key's fingerprint and its public half, from a private key file or a public one."""
    from .keys import check_key_file, is_private, load_key, read_public_key
    from .passphrase import passphrase

    check_json_file(json_file)
    if is_private(file):
        check_key_file(file)  # before anybody types a passphrase
        key = load_key(file, passphrase(descriptor)).public_key()
    else:
        key = read_public_key(file)
    document = _about(key)
    if json_file != "-":
        click.echo(f"fingerprint {document['fingerprint']}\nkind {document['kind']}")
        click.echo(document["public_key"], nl=False)
    write_json(json_file, document)


@keys.command(epilog="Example: python -m recompute_core keys trust signer.key.pub.pem --name ann")
@click.argument("public", type=GivenPath(), metavar="PUBLIC.pem")
@click.option("--name", required=True, metavar="WHO", help="Whose key it is, in your words.")
@click.option("--expires", metavar="DATE", help="The last day, UTC, on which it is trusted.")
@click.option(
    "--yes", metavar="FINGERPRINT", help="Do not ask: this is its fingerprint, as its owner told you."
)
@_signers_option
@json_option
def trust(
    public: Path,
    name: str,
    expires: str | None,
    yes: str | None,
    signers: Path | None,
    json_file: str | None,
) -> None:
    """Trust what this key signs. Compare the fingerprint with its owner first, over another channel."""
    from .keys import fingerprint, read_public_key
    from .signers import change_signers, load_signers, signers_file

    key = read_public_key(public)
    now, last = _now(), _end_of(expires)
    path = signers_file(signers)
    check_json_file(json_file)
    load_signers(path, may_be_missing=True).with_trust(key, name, now, last)  # refuses before it asks
    if not _agreed(public, fingerprint(key), name, yes):
        click.echo("Not trusted; nothing was written.", err=True)
        sys.exit(1)
    changed = change_signers(path, lambda known: known.with_trust(key, name, now, last))
    signer = changed.find(fingerprint(key))
    if json_file != "-":
        until = f" until {last:%Y-%m-%d}" if last else ""
        click.echo(f"{path}: {name} is trusted{until}: {signer.fingerprint}")
    write_json(json_file, _row(signer, now))


@keys.command(epilog="Example: python -m recompute_core keys revoke ann")
@click.argument("who", metavar="NAME_OR_FINGERPRINT")
@_signers_option
@json_option
def revoke(who: str, signers: Path | None, json_file: str | None) -> None:
    """Trust a key no longer: nothing that it has ever signed verifies from now on."""
    from .signers import change_signers, load_signers, signers_file

    path, now = signers_file(signers), _now()
    check_json_file(json_file)
    found = load_signers(path).find(who)
    changed = change_signers(path, lambda known: known.without_trust(known.find(who), now))
    signer = changed.find(found.fingerprint)
    if json_file != "-":
        click.echo(f"{path}: {signer.name} is revoked: {signer.fingerprint}")
    write_json(json_file, _row(signer, now))


@keys.command("list", epilog="Example: python -m recompute_core keys list --json -")
@_signers_option
@json_option
def list_signers(signers: Path | None, json_file: str | None) -> None:
    """List whose keys you trust, and those that expired or were revoked."""
    from rich.markup import escape
    from rich.table import Table

    from .signers import load_signers, signers_file

    path, now = signers_file(signers), _now()
    check_json_file(json_file)
    found = load_signers(path, may_be_missing=signers is None).signers
    if json_file != "-":
        table = Table("name", "state", "kind", "fingerprint", "trusted", "expires", "revoked")
        for signer in found:
            days = (signer.trusted_at, signer.expires_at, signer.revoked_at)
            table.add_row(
                escape(printable(signer.name)),
                signer.state(now),
                signer.kind,
                signer.fingerprint,
                *(f"{day:%Y-%m-%d}" if day else "" for day in days),
            )
        if found:
            show(table)
        else:
            click.echo("No signer is trusted yet; 'keys trust PUBLIC.pem --name WHO' trusts one.")
    write_json(json_file, [_row(signer, now) for signer in found])


def _about(key: "PublicKey") -> dict[str, str]:
    from .keys import fingerprint, kind_of, public_pem

    return {"fingerprint": fingerprint(key), "kind": kind_of(key), "public_key": public_pem(key)}


def _row(signer: "Signer", now: datetime) -> dict[str, Any]:
    return signer.model_dump(mode="json") | {"kind": signer.kind, "state": signer.state(now)}


def _now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def _end_of(expires: str | None) -> datetime | None:
    """The last second of that day, UTC."""
    if expires is None:
        return None
    try:
        return datetime.combine(date.fromisoformat(expires), time(23, 59, 59), UTC)
    except ValueError:
        raise InputError(f"--expires {expires}: expected a day such as 2027-12-31") from None


def _agreed(public: Path, fingerprint: str, name: str, yes: str | None) -> bool:
    """Whether the user knows this fingerprint: as given, or asked for on the terminal."""
    if yes is not None:
        if yes.strip().lower() != fingerprint:
            raise InputError(f"--yes: is not the fingerprint of {public}, which is {fingerprint}")
        return True
    if not sys.stdin.isatty():
        raise InputError(
            f"{public}: no terminal to ask on; the fingerprint is {fingerprint}: compare it with its "
            "owner's, then give it as --yes FINGERPRINT"
        )
    click.echo(f"fingerprint {fingerprint}", err=True)
    return click.confirm(f"Is this what {name} told you, over another channel?", err=True)
