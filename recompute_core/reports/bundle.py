"""A report's files: a folder, or the same as one .zip. Written whole or not at all, read with suspicion.

report.intoto.jsonl   our statement, signed          report.sigstore.json   the same for Sigstore
tests.intoto.jsonl    the gates as tests, signed     public_key.pem         the signer's key
report.html           to be read                     VERIFY.md              how to check without us
evidence/             what it all follows from
"""

import io
import os
import re
import secrets
import shutil
import stat
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import InputError
from ..reading import open_file
from .refusal import Untrusted, quoted
from .statement import is_safe_name
from .zips import contents

MOST_BYTES = 20_000_000
"""Bytes of all files together, and of a .zip, at most."""
MOST_FILES = 1000

REPORT, TESTS, SIGSTORE = "report.intoto.jsonl", "tests.intoto.jsonl", "report.sigstore.json"
PUBLIC_KEY, HTML = "public_key.pem", "report.html"
EVIDENCE = "evidence/"

_EPOCH = (1980, 1, 1, 0, 0, 0)
_DOS_FOLDER = 0x10
_PART, _LEFT_S = re.compile(r"\.[0-9a-f]{16}\.part"), 3600.0


@dataclass(frozen=True)
class Bundle:
    """The files of a report, none of them believed yet."""

    files: Mapping[str, bytes]
    """By name; those of the folder evidence with `evidence/` before it."""

    @property
    def evidence(self) -> dict[str, bytes]:
        """The evidence, by name without its folder."""
        return {
            name.removeprefix(EVIDENCE): data
            for name, data in self.files.items()
            if name.startswith(EVIDENCE)
        }


# --- writing ---------------------------------------------------------------------------------


def zip_of(bundle: Bundle) -> bytes:
    """The one .zip of these files: the same ones give the same bytes, whatever the machine.

    Stored and not compressed, since compressors differ; what is large in it is compressed already.
    """
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in sorted(bundle.files.items()):
            about = zipfile.ZipInfo(name, _EPOCH)
            about.create_system = 3  # Unix, whose modes these are
            about.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(about, data)
    return buffer.getvalue()


def check_size(bundle: Bundle) -> None:
    """InputError for a report so large that no verifier would read it."""
    size = sum(map(len, bundle.files.values()))
    if size > MOST_BYTES or len(bundle.files) > MOST_FILES:
        raise InputError(f"the report has {size} bytes; at most {MOST_BYTES} may be read")


def check_new_bundle(out: Path) -> None:
    """InputError when a report cannot be written there; asked before anybody types a passphrase."""
    if out.name in ("", ".."):
        raise InputError(f"--out {out}: is no name of a folder")
    around = Path(os.path.abspath(out)).parent
    if any(os.path.lexists(folder / REPORT) for folder in (around, around.parent)):
        raise InputError(f"--out {out}: lies in another report's folder; give another place")
    if _is_zip(out):
        if os.path.lexists(out):
            raise InputError(f"--out {out}: exists; give another name")
    elif os.path.lexists(out):
        if out.is_symlink() or not out.is_dir():
            raise InputError(f"--out {out}: exists and is no folder; give another name")
        if next(out.iterdir(), None) is not None:
            raise InputError(f"--out {out}: is not empty; give a new folder")


def write_bundle(out: Path, bundle: Bundle) -> None:
    """Write a new folder, or a .zip where `out` ends so: whole, or not at all.

    Raises InputError when something is there already, or when it cannot be written.
    """
    out = Path(os.path.abspath(out))
    check_new_bundle(out)
    try:
        check_size(bundle)
    except InputError as error:
        raise InputError(f"--out {out}: {error}") from None
    part = out.with_name(f".{secrets.token_hex(8)}.part")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        _clear_parts(out.parent)
        if _is_zip(out):
            _write(part, zip_of(bundle))
            os.link(part, out)
        else:
            _write_folder(part, bundle)
            os.rename(part, out)
        _sync_folder(out.parent)
    except OSError as error:
        raise InputError(f"--out {out}: cannot be written: {error.strerror}") from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
        with suppress(OSError):
            part.unlink()


def _clear_parts(folder: Path) -> None:
    """Remove what was left here by a process that was killed while it wrote."""
    for left in folder.glob(".*.part"):
        with suppress(OSError):
            if _PART.fullmatch(left.name) and time.time() - left.lstat().st_mtime > _LEFT_S:
                shutil.rmtree(left) if left.is_dir() else left.unlink()


def _write_folder(folder: Path, bundle: Bundle) -> None:
    (folder / EVIDENCE).mkdir(parents=True)
    for name, data in bundle.files.items():
        _write(folder / name, data)
    _sync_folder(folder / EVIDENCE)
    _sync_folder(folder)


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _is_zip(path: Path) -> bool:
    return path.suffix.lower() == ".zip"


# --- reading ---------------------------------------------------------------------------------


def read_bundle(path: Path) -> Bundle:
    """The files in a folder or a .zip.

    Raises InputError when there is nothing or it cannot be read; Untrusted: too-large, too-many-files,
    unsafe-name, duplicate-name, not-regular, not-a-zip, not-a-report.
    """
    try:
        if path.is_dir():
            return Bundle(_checked(_folder_files(path)))
        with open_file(path) as file:
            return read_zip(file.read(MOST_BYTES + 1))
    except FileNotFoundError:
        raise InputError(f"{path}: no such folder or .zip") from None
    except OSError as error:
        raise InputError(f"{error.filename or path}: cannot be read: {error.strerror}") from None


def read_zip(data: bytes) -> Bundle:
    """The files in a .zip, as it was uploaded. Raises Untrusted as `read_bundle`."""
    if len(data) > MOST_BYTES:
        raise Untrusted("too-large", f"the .zip has more than {MOST_BYTES} bytes")
    return Bundle(_checked(_zip_files(data)))


def _checked(found: Iterator[tuple[str, bytes]]) -> dict[str, bytes]:
    """Files by name, each name once, also where letters' case says nothing."""
    files: dict[str, bytes] = {}
    seen: set[str] = set()
    for name, data in found:
        if name.casefold() in seen:
            raise Untrusted("duplicate-name", f"the file {quoted(name)} is there twice")
        seen.add(name.casefold())
        files[name] = data
    if REPORT not in files:
        raise Untrusted("not-a-report", f"is no report: it has no {REPORT}")
    return files


def _folder_files(folder: Path) -> Iterator[tuple[str, bytes]]:
    left = MOST_BYTES
    names = list(_names_in(folder, ""))
    for name in names:
        data = _read_regular(folder / name, name, left)
        left -= len(data)
        yield name, data


def _names_in(folder: Path, before: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for number, entry in enumerate(entries):
            if number >= MOST_FILES:
                raise Untrusted("too-many-files", f"more than {MOST_FILES} files in a folder")
            name = before + entry.name
            if entry.is_dir(follow_symlinks=False) and f"{name}/" == EVIDENCE:
                yield from _names_in(folder / entry.name, EVIDENCE)
                continue
            if not entry.is_file(follow_symlinks=False):
                raise Untrusted("not-regular", f"{quoted(name)} is no regular file")
            _check_name(name)
            yield name


def _read_regular(path: Path, name: str, most: int) -> bytes:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with open(path, "rb", opener=lambda file, _: os.open(file, flags)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise Untrusted("not-regular", f"{quoted(name)} is no regular file")
        data = file.read(most + 1)
    if len(data) > most:
        raise Untrusted("too-large", f"the files have more than {MOST_BYTES} bytes together")
    return data


def _zip_files(data: bytes) -> Iterator[tuple[str, bytes]]:
    packed = list(contents(data, MOST_FILES, MOST_BYTES))
    top = _one_folder_of([entry.orig_filename for entry, _ in packed])
    for entry, content in packed:
        name = entry.orig_filename.removeprefix(top)
        kind = stat.S_IFMT(entry.external_attr >> 16)
        if entry.is_dir() and kind in (0, stat.S_IFDIR) and not content:
            if name not in ("", EVIDENCE):
                raise Untrusted("unsafe-name", f"{quoted(name)} is no folder of a report")
            continue
        if kind not in (0, stat.S_IFREG) or entry.is_dir() or entry.external_attr & _DOS_FOLDER:
            raise Untrusted("not-regular", f"{quoted(name)} is no regular file")
        _check_name(name)
        yield name, content


def _one_folder_of(names: list[str]) -> str:
    """The folder that everything lies in, when somebody packed the folder and not its content."""
    top = names[0].partition("/")[0] if names else ""
    is_packed = REPORT not in names and f"{top}/{REPORT}" in names and is_safe_name(top)
    return f"{top}/" if is_packed and all(name.startswith(f"{top}/") for name in names) else ""


def _check_name(name: str) -> None:
    if not is_safe_name(name):
        raise Untrusted("unsafe-name", f"{quoted(name)} is no name of a file in a report")
