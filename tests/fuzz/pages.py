"""Every page, at addresses that nobody here has written; and the pages over a store that is damaged."""

import logging
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import streamlit as st_
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from pages._parts import address, setup_form
from pages._parts.data import get_store
from pages._parts.words import literal
from recompute_core.errors import StoreError
from recompute_core.studies.store import Store
from tests.pages import studies

from . import rows
from .inputs import NASTY, texts
from .run import Kind

PAGES = (
    "home",
    "demo",
    "setup",
    "live",
    "tradeoff",
    "reinvest",
    "decision",
    "verify",
    "studies",
    "compare",
)
_SOURCES = Path(__file__).parents[2] / "pages"
_FRAME = _SOURCES / "_frame.py"
_ALSO = (
    "study",
    "plan",
    "run",
    "fit",
    "pick",
    "peak",
    "update",
    "gap",
    "relative",
    "a",
    "b",
    "step",
    "axes",
)
_WORDS = (
    "STUDY",
    "every-block",
    "every-block|T=128 B=4",
    "T=128 B=4",
    "file",
    "new",
    "open",
    "receipts",
    "another model",
    "hf:LlamaConfig?a=2020-99-99",
    "own:x",
    "64",
    "0.5",
)
_STUDY: list[str] = []

Asked = tuple[str, dict[str, list[str]]]


def names() -> tuple[str, ...]:
    """What pages may look for in an address: the keys of their fields, and what they ask for by name."""
    found: set[str] = set(_ALSO) | set(setup_form.FIELDS)
    for path in _SOURCES.rglob("*.py"):
        text = path.read_text()
        found |= set(re.findall(r'key="([a-z_]+)"', text))
        found |= set(re.findall(r'(?:several|switch)\([^)]*?"([a-z]+)"', text))
    return tuple(sorted(found))


def _in_an_address(text: str) -> str:
    """What a browser can send: its address is UTF-8."""
    return text.encode("utf-8", "replace").decode()


def _values() -> st.SearchStrategy[str]:
    return st.one_of(st.sampled_from(_WORDS), st.sampled_from(NASTY), texts).map(_in_an_address)


def _asked() -> st.SearchStrategy[Asked]:
    given = st.dictionaries(
        st.one_of(st.sampled_from(names()), st.sampled_from(names()), texts.map(_in_an_address)),
        st.lists(_values(), min_size=1, max_size=3),
        max_size=6,
    )
    return st.tuples(st.sampled_from(PAGES), given)


def _prepare(folder: Path) -> None:
    _forget()
    store = Store(folder / "home")
    _STUDY[:] = [studies.filled(store)]
    store.close()


def _forget() -> None:
    with suppress(StoreError):
        get_store().close()
    st_.cache_resource.clear()
    st_.cache_data.clear()


def open_page(page: str, given: dict[str, list[str]]) -> list[str]:
    """A page at an address; what it says is wrong."""
    app = AppTest.from_file(str(_FRAME), default_timeout=25)
    app.query_params.update({name: [_known(one) for one in many] for name, many in given.items()})
    if "study" not in given and len(given) % 2:
        app.query_params["study"] = _STUDY[0]
    app.run()
    if page != "home":
        app.switch_page(f"{page}.py").run()
    if app.exception:
        first: Any = app.exception[0]
        places = [line for line in "".join(first.stack_trace).split("\n") if "pages/" in line]
        raise AssertionError(f"{page}: {first.value[:100]} {' '.join(places[-1:])}")
    return [_seen(one.value) for kind in (app.error, app.warning) for one in kind]


def _seen(text: str) -> str:
    """Without the marks that nobody sees, which keep Streamlit from making links of text."""
    return text.replace("\u2060", "")


def _known(text: str) -> str:
    return _STUDY[0] if text == "STUDY" else text


def _read(asked: Asked, folder: Path) -> list[str]:
    return open_page(*asked)


def _read_fields(given: dict[str, list[str]], folder: Path) -> list[str]:
    """The look at an address alone, for many more addresses than pages can be drawn."""
    return [_seen(literal(one)) for one in address.faults(given, setup_form.FIELDS).values()]


def _fields() -> st.SearchStrategy[dict[str, list[str]]]:
    return st.dictionaries(
        st.sampled_from(sorted(setup_form.FIELDS)), st.lists(_values(), min_size=1, max_size=70)
    )


def _lay_rows(changes: list[rows.Change], folder: Path) -> None:
    rows.lay_home(changes, folder)
    _STUDY[:] = [rows.home_bytes()[0]]


def _read_rows(changes: list[rows.Change], folder: Path) -> list[str]:
    said = []
    _forget()
    for page in ("home", "studies", "tradeoff", "decision"):
        said += open_page(page, {"study": ["STUDY"]})
    return said


# Streamlit misses its own server at every turn.
logging.disable(logging.ERROR)

KINDS = (
    Kind(
        "addresses",
        _asked,
        _read,
        prepare=_prepare,
        usual=("tradeoff", {"study": ["STUDY"]}),
        weight=0.1,
    ),
    Kind("fields of an address", _fields, _read_fields, usual={}),
    Kind("pages of a damaged store", rows.changes, _read_rows, _lay_rows, usual=[], weight=0.03),
)
