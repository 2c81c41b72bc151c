"""Rows read straight from the leaf pages of a SQLite file, for where its trees no longer lead to them.

By the file format (https://www.sqlite.org/fileformat.html, sections 1.5, 1.6 and 2.1): every row of a
table lies on a leaf of its tree, and says there its rowid and its values; which table it is of can only
be told by how many values it has. Pages on the list of free ones are left out, as what they hold was
deleted. The write-ahead log is not read: it has to be checkpointed before.
"""

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

PAGE = 4096
"""Bytes of a page of every store, all of them usable."""
_HEAD = 100
"""Bytes of the file's own head, at the beginning of its first page."""
_LEAF = 0x0D
_MOST_LOCAL, _LEAST_LOCAL = PAGE - 35, (PAGE - 12) * 32 // 255 - 23
"""Bytes of a row that lie on its leaf; the rest lies on a chain of pages."""
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""By its serial type, how many bytes an integer has."""
_REAL, _ZERO, _ONE, _BLOB = 7, 8, 9, 12
_BROKEN = (struct.error, IndexError, ValueError)

Value = int | float | str | bytes | None


def rows_on_leaves(path: Path) -> Iterator[tuple[int, tuple[Value, ...]]]:
    """Rowid and values of each row on a leaf page in use, of all tables, in no order; what is broken is
    left out. Text that is no UTF-8 has marks (U+FFFD)."""
    with path.open("rb") as file:
        free = _free_pages(file)
        for number in range(1, path.stat().st_size // PAGE + 1):
            if number not in free:
                yield from _rows_of(file, number)


def _page(file: BinaryIO, number: int) -> bytes:
    if number < 1:
        raise ValueError("pages are counted from 1")
    file.seek((number - 1) * PAGE)
    found = file.read(PAGE)
    if len(found) < PAGE:
        raise ValueError("the file ends before it")
    return found


def _free_pages(file: BinaryIO) -> set[int]:
    """The list of free pages, as far as it can be followed."""
    free: set[int] = set()
    try:
        (trunk,) = struct.unpack_from(">I", _page(file, 1), 32)
        while trunk and trunk not in free:
            free.add(trunk)
            page = _page(file, trunk)
            trunk, number = struct.unpack_from(">II", page)
            free.update(struct.unpack_from(f">{min(number, PAGE // 4 - 2)}I", page, 8))
    except _BROKEN:
        pass
    return free


def _rows_of(file: BinaryIO, number: int) -> Iterator[tuple[int, tuple[Value, ...]]]:
    try:
        page, at = _page(file, number), _HEAD if number == 1 else 0
        if page[at] != _LEAF:
            return
        (cells,) = struct.unpack_from(">H", page, at + 3)
        places = struct.unpack_from(f">{cells}H", page, at + 8)
    except _BROKEN:
        return
    for place in places:
        try:
            yield _row_at(file, page, place)
        except _BROKEN:
            continue


def _row_at(file: BinaryIO, page: bytes, place: int) -> tuple[int, tuple[Value, ...]]:
    size, place = _varint(page, place)
    rowid, place = _varint(page, place)
    local = size
    if size > _MOST_LOCAL:
        over = _LEAST_LOCAL + (size - _LEAST_LOCAL) % (PAGE - 4)
        local = over if over <= _MOST_LOCAL else _LEAST_LOCAL
    record = page[place : place + local]
    if local < size:
        (following,) = struct.unpack_from(">I", page, place + local)
        record += _overflow(file, following, size - local)
    if len(record) != size:
        raise ValueError("it goes beyond its page")
    return _signed(rowid), tuple(_values(record))


def _overflow(file: BinaryIO, following: int, size: int) -> bytes:
    parts = []
    while size > 0:
        page = _page(file, following)
        (following,) = struct.unpack_from(">I", page)
        parts.append(page[4 : 4 + size])
        size -= len(parts[-1])
    return b"".join(parts)


def _values(record: bytes) -> Iterator[Value]:
    begin, at = _varint(record, 0)
    ends, kinds = begin, []
    while at < ends:
        kind, at = _varint(record, at)
        kinds.append(kind)
    for kind in kinds:
        size = _INTEGERS.get(kind, 8 if kind == _REAL else max(0, kind - _BLOB) // 2)
        part = record[begin : begin + size]
        if len(part) < size or kind in (10, 11):
            raise ValueError("no such value")
        begin += size
        if kind in _INTEGERS:
            yield int.from_bytes(part, "big", signed=True)
        elif kind == _REAL:
            yield float(struct.unpack(">d", part)[0])
        elif kind >= _BLOB:
            yield part.decode(errors="replace") if kind % 2 else part
        else:
            yield {_ZERO: 0, _ONE: 1}.get(kind)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """An integer of one to nine bytes, seven bits of each and all of the ninth, and where it ends."""
    value = 0
    for offset in range(8):
        byte = data[at + offset]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + offset + 1
    return value << 8 | data[at + 8], at + 9


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
