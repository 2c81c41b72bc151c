"""What a form's fields may hold when an address fills them; else a fault in words, and the usual value.

Streamlit writes what differs from a field's default into the address and reads it back, but drops what
a field cannot hold without a word, and fails on an infinite whole number. So each value is looked at
before its field is drawn. What a field can hold stays in it, also where a study of it would be refused:
the page then says why, and it can be mended.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

import streamlit as st

from .words import literal

Given = Sequence[str]
"""Every value that an address has of one name."""


@dataclass(frozen=True)
class OneOf:
    """One of these; a name that is not there is nothing."""

    options: Sequence[str]

    def fault(self, given: Given) -> str | None:
        return None if given[-1] in self.options else f"is none of {', '.join(self.options)}"


@dataclass(frozen=True)
class SomeOf:
    """Any number of these; an empty value is none of them."""

    options: Sequence[str]

    def fault(self, given: Given) -> str | None:
        if all(one in self.options for one in given) or list(given) == [""]:
            return None
        return f"is none of {_listed(self.options)}"


@dataclass(frozen=True)
class Number:
    """A number from `least` to `most`; an empty value where a field may be empty."""

    least: float = float("-inf")
    most: float = float("inf")
    whole: bool = False
    may_be_empty: bool = False

    def fault(self, given: Given) -> str | None:
        text = given[-1]
        if text == "" and self.may_be_empty:
            return None
        kind = "a whole number" if self.whole else "a number"
        try:
            value = int(text) if self.whole and len(text) <= 20 else float(text)
        except ValueError:
            return f"is not {kind}"
        if not isfinite(value) or value != (int(value) if self.whole else value):
            return f"is not {kind}"
        if not self.least <= value <= self.most:
            return f"is not {kind} from {self.least:,.10g} to {self.most:,.10g}"
        return None


@dataclass(frozen=True)
class Truth:
    """true or false."""

    def fault(self, given: Given) -> str | None:
        return None if given[-1].lower() in ("true", "false") else "is neither true nor false"


@dataclass(frozen=True)
class Texts:
    """Values of one's own, so many and so long at most."""

    most: int = 64
    longest: int = 40

    def fault(self, given: Given) -> str | None:
        if len(given) > self.most:
            return f"are more than {self.most}"
        if any(len(text) > self.longest for text in given):
            return f"is longer than {self.longest} characters"
        return None


Field = OneOf | SomeOf | Number | Truth | Texts
Fields = Mapping[str, tuple[str, Field]]
"""By its name in the address: a field's label, and what it may hold."""


def faults(given: Mapping[str, Given], fields: Fields) -> dict[str, str]:
    """By name, a sentence on each value that its field cannot hold."""
    return {
        name: f"{label}: {_quoted(given[name])} {why}"
        for name, (label, field) in fields.items()
        if given.get(name) and (why := field.fault(given[name])) is not None
    }


def _quoted(given: Given) -> str:
    text = ", ".join(given)
    return f"“{text if len(text) <= 40 else f'{text[:39]}…'}”"


def _listed(options: Sequence[str]) -> str:
    return ", ".join(options) if len(options) <= 9 else f"{options[0]} to {options[-1]}"


# --- in the browser -------------------------------------------------------------------------------

_FAULTS = "faults in the address"


def look_at(fields: Fields) -> None:
    """Take out of the address what these fields cannot hold, and draw the page again without it.

    To be called before they are drawn; fields that are drawn already hold what they hold.
    """
    params, state = st.query_params, st.session_state
    given = {name: params.get_all(name) for name in fields if name in params and name not in state}
    found = faults(given, fields)
    if not found:
        return
    state[_FAULTS] = [*state.get(_FAULTS, []), *found.values()]
    for name in found:
        del params[name]
    st.rerun()


def say_faults() -> None:
    """What was wrong with the address, in one line, until the next thing that is done."""
    if found := st.session_state.pop(_FAULTS, None):
        what = ". ".join(found[:4])
        more = f". And {len(found) - 4} more" if len(found) > 4 else ""
        st.warning(literal(f"Not taken from the address, the usual stands. {what}{more}."))
