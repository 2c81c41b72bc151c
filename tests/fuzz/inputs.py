"""Texts, values and changes to whole documents, as somebody careless or hostile would make them."""

import copy
import json
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

MOST_COPIED = 10_000_000
"""Letters of JSON that copies of one node come to, at most."""
NASTY = (
    "",
    " ",
    "\0",
    "a\0b",
    "\n",
    "a\r\nb",
    "\ufeff",
    "\ud800",
    "\udcff",
    "\u202e\u2066abc",
    "\x1b[2J\x1b]0;x\x07",
    "\u2028",
    "é",
    "💥",
    "１２",
    "²",
    "../../secret",
    "../secret",
    "/etc/passwd",
    "~root",
    "~nobody-of-that-name",
    "file:///etc/passwd",
    "link",
    "%s%n{0}{__class__}",
    "${HOME}",
    "`id`",
    "'; DROP TABLE studies;--",
    "<script>alert(1)</script>",
    "[a](javascript:alert(1))",
    "NaN",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "-1e-999",
    "1e308",
    "5e-324",
    "0x7fffffffffffffff",
    "1_000",
    "9" * 400,
    "9" * 5000,
    "-" + "9" * 30,
    "0",
    "-0.0",
    "true",
    "null",
    "none",
    "None",
    "__proto__",
    "a" * 10_000,
    "a." * 2_000 + "a",
    "[" * 500,
    "{" * 500,
)

texts = st.one_of(
    st.sampled_from(NASTY),
    st.text(st.characters(codec="utf-8"), max_size=12),
    st.text(st.characters(), max_size=6),  # halves of surrogate pairs too
    st.tuples(st.sampled_from(NASTY), st.text(max_size=4)).map("".join),
)
numbers: st.SearchStrategy[Any] = st.one_of(
    st.integers(),
    st.sampled_from((0, -1, 2**31 - 1, 2**31, 2**53, 2**63, 2**64, -(2**63), 10**30, 10**400)),
    st.just(5000).map(lambda digits: 10**digits),  # more than Python writes out
    st.floats(),
    st.sampled_from((1e308, 5e-324, -0.0, 1e16, 0.1)),
)
scalars: st.SearchStrategy[Any] = st.one_of(st.none(), st.booleans(), numbers, texts)
values: st.SearchStrategy[Any] = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=8,
)


def nested(depth: int, kind: str = "list") -> Any:
    """Lists or mappings inside each other."""
    found: Any = 1
    for _ in range(depth):
        found = [found] if kind == "list" else {"a": found}
    return found


def mutated(make: Callable[[], Any], most: int = 3) -> st.SearchStrategy[Any]:
    """A document with a few places changed: other values, gone, twice, under other names."""

    @st.composite
    def changed(draw: st.DrawFn) -> Any:
        found = copy.deepcopy(make())
        for _ in range(draw(st.integers(1, most))):
            found = _changed(draw, found)
        return found

    return changed()


def _changed(draw: st.DrawFn, document: Any) -> Any:
    above: Any = None
    key: Any = None
    node = document
    while isinstance(node, dict | list) and node and (above is None or draw(st.integers(0, 4))):
        keys = sorted(node, key=str) if isinstance(node, dict) else range(len(node))
        above, key = node, draw(st.sampled_from(keys))
        node = node[key]
    if above is None:
        return draw(values)
    what = draw(st.integers(0, 9))
    if what == 0:
        del above[key]
    elif what == 1 and isinstance(above, list):
        above.insert(key, copy.deepcopy(node))
    elif what == 1:
        above[draw(texts)] = copy.deepcopy(node)
    elif what == 2:
        above[key] = draw(values)
    elif what == 3:
        above[key] = nested(
            draw(st.sampled_from((3, 60, 70, 300))), draw(st.sampled_from(("list", "map")))
        )
    elif what == 4:
        # Of what is large already there are fewer: the maker of an input has a memory too.
        most_copies = MOST_COPIED // len(as_json(node))
        above[key] = [node] * min(draw(st.sampled_from((0, 1, 2, 1001))), most_copies)
    elif what == 5 and isinstance(node, int | float) and abs(node) < 1e300:
        above[key] = draw(st.sampled_from((-node, node + 1, str(node)[:9], node * 10**20)))
    elif what == 6 and isinstance(node, str):
        cut = draw(st.integers(0, len(node)))
        above[key] = node[:cut] + draw(texts) + node[cut:]
    elif what == 7 and isinstance(above, list):
        above.reverse()
    else:
        above[key] = draw(scalars)
    return document


def as_json(value: Any) -> bytes:
    """JSON as Python writes it, NaN and halves of surrogate pairs included."""
    try:
        return json.dumps(value).encode()
    except ValueError:  # a number of more digits than Python writes
        return json.dumps(_short(value)).encode()


def _short(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**4000:
        return 10**4000
    if isinstance(value, list):
        return [_short(one) for one in value]
    if isinstance(value, dict):
        return {key: _short(one) for key, one in value.items()}
    return value


def mutated_bytes(data: Callable[[], bytes], tokens: tuple[bytes, ...] = ()) -> st.SearchStrategy[bytes]:
    """Bytes with pieces taken out, put in, repeated and replaced."""
    pieces = st.one_of(
        st.binary(max_size=8),
        st.sampled_from((b"", b"\0", b"\xff", b"\xef\xbb\xbf", b"\r", b"\n", b'"', b"[" * 200, *tokens)),
    )

    @st.composite
    def changed(draw: st.DrawFn) -> bytes:
        found = data()
        for _ in range(draw(st.integers(1, 3))):
            at = draw(st.integers(0, len(found)))
            length = draw(st.sampled_from((0, 1, 2, 4, 8, 100, 5000)))
            what = draw(st.integers(0, 3))
            if what == 0:
                found = found[:at]
            elif what == 1:
                found = found[:at] + found[at : at + length] + found[at:]
            else:
                found = found[:at] + draw(pieces) + found[at + length :]
        return found

    return changed()
