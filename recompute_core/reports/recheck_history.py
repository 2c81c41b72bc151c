"""Every recheck is kept, one JSON line each, by the statement that it is of. No torch.

`RECOMPUTE_HOME`/rechecks/<SHA-256 of the statement>.jsonl; lines are only ever added, each in one write.
A line that was torn when a machine went down is passed over.
"""

import base64
import binascii
import hashlib
import json
import os
from pathlib import Path

from pydantic import ValidationError

from ..errors import StoreError
from ..studies.locks import Lock
from .envelope import MOST_BYTES
from .recheck_record import Recheck
from .refusal import Untrusted
from .strict_json import parse

_PATIENCE_S = 10.0


def statement_digest(envelope: bytes) -> str:
    """`sha256:` and the digest of the statement in an envelope, which need not be trusted for it.

    Raises Untrusted when there is none in it.
    """
    raw = parse(envelope, most_bytes=MOST_BYTES, what="the envelope")
    try:
        payload = base64.b64decode(raw["payload"], validate=True)
    except (TypeError, KeyError, ValueError, binascii.Error):
        raise Untrusted("not-an-envelope", "the envelope: holds no statement") from None
    return "sha256:" + hashlib.sha256(payload).hexdigest()


def history(home: Path, statement: str) -> tuple[Recheck, ...]:
    """The rechecks of a statement in this RECOMPUTE_HOME, oldest first; those that can be read."""
    try:
        lines = _file(home, statement).read_bytes().split(b"\n")
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreError(f"{error.filename}: {error.strerror}") from None
    found = []
    for line in filter(None, lines):
        try:
            found.append(Recheck.model_validate_json(line))
        except ValidationError:  # torn, or by a version to come
            continue
    return tuple(found)


def keep(home: Path, recheck: Recheck) -> None:
    """Add a recheck to the history of its statement. Raises StoreError, and then nothing was added."""
    path = _file(home, recheck.statement)
    line = json.dumps(recheck.document(), allow_nan=False).encode() + b"\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock = Lock(path.with_name(f".{path.name}.lock"))
        if not lock.acquire(_PATIENCE_S):
            raise StoreError(f"{path}: another process is writing to it")
        try:
            _append(path, line)
        finally:
            lock.release()
    except OSError as error:
        raise StoreError(f"{error.filename or path}: {error.strerror}") from None


def _append(path: Path, line: bytes) -> None:
    with path.open("a+b", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        if end:
            file.seek(end - 1)
            if file.read(1) != b"\n":
                line = b"\n" + line  # what was torn stays a line of its own
        try:
            if file.write(line) != len(line):
                raise OSError(0, "no space left", str(path))
            os.fsync(file.fileno())
        except BaseException:
            file.truncate(end)
            raise


def _file(home: Path, statement: str) -> Path:
    digest = statement.removeprefix("sha256:")
    assert len(digest) == 64 and set(digest) <= set("0123456789abcdef"), "no digest of a statement"
    return folder(home) / f"{digest}.jsonl"


def folder(home: Path) -> Path:
    """Where rechecks are kept."""
    return home / "rechecks"
