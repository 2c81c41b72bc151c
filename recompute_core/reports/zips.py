"""A .zip of which every unpacker gets the same files, or none is read.

Unpackers find files by the directory at the end, or by the headers in front of each file; some take a
second name from an extra field, or skip what lies between. So nothing lies between, both say the same,
and of extra fields only those that hold times and owners are there.
"""

import io
import struct
import zipfile
import zlib
from collections.abc import Iterator

from .refusal import Untrusted

_LOCAL, _END = struct.Struct("<4s5H3L2H"), struct.Struct("<4s4H2LH")
_DESCRIPTOR = struct.Struct("<4s3L")
_DIRECTORY_BYTES = 46
"""Of an entry of the directory, its name and extra fields aside."""
_LARGEST_ENTRY = 1024
"""Bytes of such an entry, at most, on average."""
_LARGE_MARK = b"PK\6\7"
"""Begins the 20 bytes that send readers of large archives to another directory."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_ENCRYPTED, _DESCRIBED = 0x1, 0x8
_FLAGS = 0x6 | _DESCRIBED | 0x800
"""How hard it was compressed, sizes after the content, a name in UTF-8."""
_SYSTEMS = (0, 3, 10, 11, 19)
"""DOS, Unix, Windows twice, macOS: where an ASCII name is just that name."""
_TIMES_AND_OWNERS = (0x5455, 0x7875, 0x5855, 0x000A)
_DOS_LABEL = 0x08


def contents(data: bytes, most_files: int, most_bytes: int) -> Iterator[tuple[zipfile.ZipInfo, bytes]]:
    """The entries in the order of the directory, folders too, each with its content.

    Raises Untrusted: too-many-files, too-large, not-a-zip.
    """
    start = _directory_at(data, most_files)
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            entries = archive.infolist()
        starts = _starts(data, entries, start)
    except (
        zipfile.BadZipFile,
        struct.error,
        NotImplementedError,
        ValueError,
        OSError,
        OverflowError,
        EOFError,
    ):
        raise _damaged() from None
    if sum(entry.file_size for entry in entries) > most_bytes:
        raise Untrusted("too-large", f"the files say that they have more than {most_bytes} bytes")
    for entry in entries:
        at = starts[entry.header_offset]
        yield entry, _content(data[at : at + entry.compress_size], entry)


def _directory_at(data: bytes, most_files: int) -> int:
    """Where the directory begins: right before its end, which is the last there is."""
    if len(data) < _END.size:
        raise _damaged()
    mark, disk, first, here, count, size, start, comment = _END.unpack(data[-_END.size :])
    if mark != b"PK\5\6":
        raise _damaged()
    if count > most_files or size > most_files * _LARGEST_ENTRY:
        raise Untrusted("too-many-files", f"{count} files; at most {most_files} are read")
    is_plain = disk == first == comment == 0 and here == count and start + size + _END.size == len(data)
    if not is_plain or _LARGE_MARK in data[-_END.size - 20 : -_END.size]:
        raise _odd("holds something before its files or after them")
    return int(start)


def _starts(data: bytes, entries: list[zipfile.ZipInfo], directory: int) -> dict[int, int]:
    """Where the content of each entry begins, by where its header does: headers and contents one after
    the other, from the first byte to the directory, which holds nothing else."""
    starts: dict[int, int] = {}
    at = 0
    for entry in sorted(entries, key=lambda one: one.header_offset):
        _check_entry(entry)
        if entry.header_offset != at:
            raise _odd("holds something between its files")
        starts[at], at = _content_at(data, entry)
    listed = sum(_DIRECTORY_BYTES + len(one.orig_filename) + len(one.extra) for one in entries)
    count = _END.unpack(data[-_END.size :])[4]
    if at != directory or at + listed + _END.size != len(data) or len(entries) != count:
        raise _odd("holds something beside its files")
    return starts


def _check_entry(entry: zipfile.ZipInfo) -> None:
    if entry.compress_type not in _METHODS or entry.flag_bits & _ENCRYPTED:
        raise _odd("is packed or encrypted in a way that is not read")
    if not entry.filename:  # without what follows a zero byte
        raise Untrusted("unsafe-name", "a file in the .zip has no name")
    if not entry.orig_filename.isascii():
        raise Untrusted("unsafe-name", "a name in the .zip is not ASCII")
    if entry.flag_bits & ~_FLAGS or entry.comment or entry.create_system not in _SYSTEMS:
        raise _odd("says more about a file than its name, its size and its time")
    if entry.volume or entry.external_attr & _DOS_LABEL:
        raise _odd("holds something that is no file")
    _check_extra(entry.extra)


def _content_at(data: bytes, entry: zipfile.ZipInfo) -> tuple[int, int]:
    """Where its content begins, and where all of the entry ends."""
    at = entry.header_offset
    mark, _, flags, method, _, _, crc, packed, size, name_size, extra_size = _LOCAL.unpack(
        data[at : at + _LOCAL.size]
    )
    at += _LOCAL.size
    name, extra = data[at : at + name_size], data[at + name_size : at + name_size + extra_size]
    at += name_size + extra_size
    end = at + entry.compress_size
    sizes = (entry.CRC, entry.compress_size, entry.file_size)
    is_described = bool(flags & _DESCRIBED)
    if (mark, flags, method) != (b"PK\3\4", entry.flag_bits, entry.compress_type) or (
        name != entry.orig_filename.encode()
        or ((crc, packed, size) != sizes and not (is_described and not any((crc, packed, size))))
        or (is_described and method == zipfile.ZIP_STORED)
    ):
        raise _odd("says one thing of a file in its directory and another in front of it")
    _check_extra(extra)
    if is_described:
        if data[end : end + _DESCRIPTOR.size] != _DESCRIPTOR.pack(b"PK\7\10", *sizes):
            raise _odd("says one thing of a file in its directory and another after it")
        end += _DESCRIPTOR.size
    return at, end


def _check_extra(extra: bytes) -> None:
    while extra:
        kind, size = struct.unpack("<2H", extra[:4])
        if kind not in _TIMES_AND_OWNERS or 4 + size > len(extra):
            raise _odd("says more about a file than its name, its size and its time")
        extra = extra[4 + size :]


def _content(packed: bytes, entry: zipfile.ZipInfo) -> bytes:
    data = packed
    if entry.compress_type == zipfile.ZIP_DEFLATED:
        unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            data = unpacker.decompress(packed, entry.file_size + 1)
        except zlib.error:
            raise _damaged() from None
        if not unpacker.eof or unpacker.unused_data:
            raise _damaged()
    if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
        raise _damaged()
    return data


def _damaged() -> Untrusted:
    return Untrusted("not-a-zip", "is no .zip, or a damaged one")


def _odd(what: str) -> Untrusted:
    return Untrusted("not-a-zip", f"the .zip {what}; pack it anew")
