"""Whom a verifier trusts: the verifier's own file, JSON `recompute-signers/1`.

A key expires by the verifier's clock: when a report was signed is the signer's own word, so that what
an expired or revoked key signed is refused, however old it says it is.
"""

import json
import os
import stat
from collections.abc import Callable
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from ..errors import InputError
from ..reading import open_file
from ..spec import explain
from ..studies.locks import Lock
from ..studies.store import home_folder
from ..writing import write_whole
from .keys import Kind, PublicKey, fingerprint, kind_of, public_key_of, public_pem
from .refusal import Untrusted
from .strict_json import parse

State = Literal["trusted", "expired", "revoked"]
_LARGEST_FILE_BYTES = 4_000_000
_PATIENCE_S = 10.0
_ROOT = 0


class Signer(BaseModel):
    """One public key and whose it is, as its verifier has written it down."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    name: Annotated[str, Field(min_length=1, max_length=100)]
    """Who signs with it, in the verifier's words."""
    public_key: str
    """PEM of the SubjectPublicKeyInfo."""
    fingerprint: str
    """`sha256:` and the hex digest of that key's DER."""
    trusted_at: AwareDatetime
    expires_at: AwareDatetime | None = None
    """From this moment on it is not trusted."""
    revoked_at: AwareDatetime | None = None
    """Since when it is not trusted; nothing that it signed is, earlier reports neither."""

    @field_validator("name")
    @classmethod
    def _can_be_read(cls, name: str) -> str:
        if not name.isprintable() or name != name.strip() or name.startswith("sha256:"):
            raise ValueError("expected printable letters, no space around them, and no fingerprint")
        return name

    @model_validator(mode="after")
    def _fingerprint_is_of_the_key(self) -> Self:
        if fingerprint(self.key) != self.fingerprint:
            raise ValueError(f"fingerprint: is not of this public_key, whose is {fingerprint(self.key)}")
        return self

    @cached_property
    def key(self) -> PublicKey:
        return public_key_of(self.public_key, "public_key")

    @property
    def kind(self) -> Kind:
        return kind_of(self.key)

    def state(self, now: datetime) -> State:
        """Whether what it signed is believed at this moment."""
        if self.revoked_at is not None:
            return "revoked"
        if self.expires_at is not None and now >= self.expires_at:
            return "expired"
        return "trusted"


class Signers(BaseModel):
    """All keys that a verifier has ever trusted; those that were revoked stay in it as such."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, populate_by_name=True
    )

    schema_name: Annotated[Literal["recompute-signers/1"], Field(alias="schema")] = "recompute-signers/1"
    signers: tuple[Signer, ...] = ()

    @model_validator(mode="after")
    def _are_told_apart(self) -> Self:
        prints = [signer.fingerprint for signer in self.signers]
        names = [signer.name for signer in self.signers if signer.revoked_at is None]
        for kind, found in (("key", prints), ("name", names)):
            if twice := next((one for one in found if found.count(one) > 1), None):
                raise ValueError(f"signers: the {kind} {twice} stands twice")
        return self

    def find(self, who: str) -> Signer:
        """A signer by fingerprint, or by name if not revoked. InputError when there is none."""
        for signer in self.signers:
            if who == signer.fingerprint or (who == signer.name and signer.revoked_at is None):
                return signer
        if any(who == signer.name for signer in self.signers):
            raise InputError(f"the key of {who} is revoked already")
        known = ", ".join(signer.name for signer in self.signers if signer.revoked_at is None)
        raise InputError(f"no signer has the name or fingerprint {who}; there are: {known or 'none'}")

    def with_trust(
        self, key: PublicKey, name: str, now: datetime, expires_at: datetime | None = None
    ) -> "Signers":
        """These and one more; under a name that has this very key, its expiry is set anew.

        Raises InputError when the name is another key's, or the key is another name's or was revoked.
        """
        made = _signer(key, name, now, expires_at)
        for known in self.signers:
            if known.fingerprint == made.fingerprint and known.revoked_at is not None:
                raise InputError(f"this key, {known.name}'s, was revoked and stays so")
            if known.fingerprint == made.fingerprint and known.name != name:
                raise InputError(f"this key is trusted already, as {known.name}")
            if known.name == name and known.revoked_at is None and known.fingerprint != made.fingerprint:
                raise InputError(f"the name {name} is another key's; revoke that, or give another")
        others = tuple(known for known in self.signers if known.fingerprint != made.fingerprint)
        return Signers(signers=(*others, made))

    def without_trust(self, signer: Signer, now: datetime) -> "Signers":
        """These, with one of them revoked. InputError when it was already."""
        if signer.revoked_at is not None:
            raise InputError(f"the key of {signer.name} is revoked already")
        revoked = signer.model_copy(update={"revoked_at": now})
        return Signers(signers=tuple(revoked if one == signer else one for one in self.signers))

    def document(self) -> dict[str, Any]:
        """The file's content."""
        return self.model_dump(mode="json", by_alias=True)


def signers_file(given: Path | None) -> Path:
    """Where the signers are kept: as given, or `signers.json` in RECOMPUTE_HOME."""
    return given if given is not None else home_folder() / "signers.json"


def load_signers(path: Path, *, may_be_missing: bool = False) -> Signers:
    """The signers of a file; none, if it may be missing and is. InputError names what is wrong in it."""
    try:
        with open_file(path) as file:
            about = os.fstat(file.fileno())
            data = file.read(_LARGEST_FILE_BYTES + 1)
    except FileNotFoundError:
        if may_be_missing:
            return Signers()
        raise InputError(f"{path}: no such file; 'keys trust PUBLIC.pem --name WHO' makes it") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    _check_whose(path, about)
    try:
        raw = parse(data, most_bytes=_LARGEST_FILE_BYTES, what=str(path))
        if not isinstance(raw, dict) or raw.get("schema") != "recompute-signers/1":
            raise InputError(f"{path}: expected the schema recompute-signers/1")
        return Signers.model_validate(raw)
    except Untrusted as error:
        raise InputError(str(error)) from None
    except ValidationError as error:
        raise InputError(f"{path}: {explain(error)}") from None


def _check_whose(path: Path, about: os.stat_result) -> None:
    """That nobody but the verifier, or root, can say whom the verifier trusts."""
    if not stat.S_ISREG(about.st_mode):
        return  # a pipe, as a shell makes it
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise InputError(f"{path}: others may change whom you trust; run chmod go-w on it")
    if about.st_uid not in (os.geteuid(), _ROOT):
        raise InputError(f"{path}: belongs to somebody else, who may change whom you trust; copy it")


def change_signers(path: Path, change: Callable[[Signers], Signers]) -> Signers:
    """Load, change and write the file, alone on this machine; after an InputError it is as it was."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path.with_name(f".{path.name}.lock"))
        if not lock.acquire(_PATIENCE_S):
            raise InputError(f"{path}: another process is changing it")
        try:
            changed = change(load_signers(path, may_be_missing=True))
            write_whole(path, json.dumps(changed.document(), indent=2, ensure_ascii=False) + "\n")
            path.chmod(path.stat().st_mode & ~(stat.S_IWGRP | stat.S_IWOTH))
        finally:
            lock.release()
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None
    return changed


def _signer(key: PublicKey, name: str, now: datetime, expires_at: datetime | None) -> Signer:
    if expires_at is not None and expires_at <= now:
        raise InputError(f"{expires_at:%Y-%m-%d} is past; expected a day to come")
    try:
        return Signer(
            name=name,
            public_key=public_pem(key),
            fingerprint=fingerprint(key),
            trusted_at=now,
            expires_at=expires_at,
        )
    except ValidationError as error:
        raise InputError(explain(error)) from None
