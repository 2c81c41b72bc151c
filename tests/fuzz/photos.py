"""A folder of somebody's photos: the manifest, where its rows lead, and the pictures themselves."""

import io
import os
import shutil
import zlib
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from hypothesis import strategies as st
from PIL import Image

from recompute_core.spec import parse_spec
from recompute_core.workloads.receipts.labels import LABELS
from recompute_core.workloads.receipts.manifest import check_images, load_grey, read_manifest

from .asked import admitted
from .inputs import mutated, mutated_bytes, texts
from .run import Kind

Given = tuple[str, bytes, str | None, bytes, str | None]
"""The manifest's name and content; the name of one picture, its content, or where it links to."""
_COLUMNS = ("image_path", "receipt_id", "label", "split", "accepted")
_PLACES = (
    "../secret",
    "link",
    "link/secret",
    "/etc/passwd",
    "shots/..",
    "shots",
    "a\0b",
    "pipe",
    "x" * 300,
)


def _table() -> list[list[str]]:
    rows = [
        [f"shots/{at}.png", f"r{at}", LABELS[at % 6], "validation" if at > 5 else "train", "true"]
        for at in range(12)
    ]
    return [list(_COLUMNS), *rows]


@cache
def _picture(kind: str = "PNG", mode: str = "L") -> bytes:
    buffer = io.BytesIO()
    Image.effect_noise((24, 48), 20).convert(mode).save(buffer, kind)
    return buffer.getvalue()


def _bomb() -> bytes:
    """A PNG that says it has 60,000 x 60,000 pixels."""
    header = b"IHDR" + (60_000).to_bytes(4, "big") * 2 + bytes([8, 0, 0, 0, 0])
    whole = b"".join(
        len(part[4:]).to_bytes(4, "big") + part + zlib.crc32(part).to_bytes(4, "big")
        for part in (header, b"IDAT" + zlib.compress(bytes(10_000)), b"IEND")
    )
    return b"\x89PNG\r\n\x1a\n" + whole


def _csv(rows: Any) -> bytes:
    if not isinstance(rows, list):
        return b""
    return "\n".join(
        ",".join(map(_cell, row if isinstance(row, list) else [row])) for row in rows
    ).encode("utf-8", "surrogatepass")


def _cell(value: Any) -> str:
    try:
        return str(value)
    except ValueError:
        return "9" * 5000


def _parquet(rows: Any) -> bytes:
    """Columns of whatever types pandas finds in the cells."""
    buffer = io.BytesIO()
    try:
        pd.DataFrame(rows[1:], columns=rows[0]).to_parquet(buffer)
    except Exception:  # a table that cannot be written cannot be handed over
        return b"PAR1"
    return buffer.getvalue()


@cache
def _good_parquet() -> bytes:
    return _parquet(_table())


def _folders() -> st.SearchStrategy[Given]:
    @st.composite
    def rows(draw: st.DrawFn) -> list[list[str]]:
        found = _table()
        for _ in range(draw(st.integers(0, 3))):
            row = draw(st.integers(0, len(found) - 1))
            at = draw(st.integers(0, len(_COLUMNS) - 1))
            found[row][at] = draw(st.one_of(st.sampled_from(_PLACES), texts, st.sampled_from(LABELS)))
        return found

    tables = st.one_of(rows(), mutated(_table))
    tokens = (b",", b'"', b"\r", b"PAR1", b"\x15\x04")
    manifests = st.one_of(
        st.tuples(st.just("manifest.csv"), tables.map(_csv)),
        st.tuples(st.just("manifest.csv"), mutated_bytes(lambda: _csv(_table()), tokens)),
        st.tuples(st.just("manifest.parquet"), tables.map(_parquet)),
        st.tuples(st.just("manifest.parquet"), mutated_bytes(_good_parquet, tokens)),
        st.tuples(st.just("manifest.csv"), st.just(_csv(_table()))),
        st.tuples(st.just("manifest.csv"), st.just(_csv(_table()))),
    )
    kinds = st.sampled_from(
        (("PNG", "L"), ("JPEG", "RGB"), ("TIFF", "I;16"), ("TIFF", "L"), ("WEBP", "RGBA"), ("BMP", "P"))
    )
    pictures = st.one_of(
        st.just(_picture()),
        kinds.flatmap(lambda kind: mutated_bytes(lambda: _picture(*kind))),
        kinds.map(lambda kind: _picture(*kind)),
        st.just(_bomb()),
        st.just(b""),
        st.just(b"GIF89a" + bytes(99)),
        st.just(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"),
    )
    names = st.one_of(st.none(), st.sampled_from(("shots/0.png", "shots/7.png")))
    links = st.one_of(
        st.none(),
        st.none(),
        st.sampled_from(("../secret", "../../secret", "/dev/zero", "1.png", "|", ".")),
    )
    return st.tuples(manifests, names, pictures, links).map(lambda one: (*one[0], *one[1:]))


def _lay(given: Given, folder: Path) -> None:
    name, data, picture, content, link = given
    at = folder / "photos"
    shutil.rmtree(at, ignore_errors=True)
    (at / "shots").mkdir(parents=True)
    (at / name).write_bytes(data)
    (at / "link").symlink_to("../..")
    os.mkfifo(at / "pipe")
    for number in range(12):
        (at / f"shots/{number}.png").write_bytes(_picture())
    if picture is not None:
        path = at / picture
        path.write_bytes(content)
        if link is not None:
            path.unlink()
            os.mkfifo(path) if link == "|" else path.symlink_to(link)


def _read(given: Given, folder: Path) -> list[str]:
    at = folder / "photos"
    spec = {
        "workload": {"name": "receipts", "images": str(at), "batch": 2, "height": 32, "image_width": 32}
    }
    admitted(parse_spec(spec), folder)
    check_images(at)
    manifest = read_manifest(at)
    load_grey(manifest, manifest.photos, 32, 32)
    assert manifest.digest
    return []


KINDS = (
    Kind(
        "photos",
        _folders,
        _read,
        _lay,
        usual=("manifest.csv", _csv(_table()), None, b"", None),
    ),
)
