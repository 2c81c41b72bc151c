"""Markup that is safe by construction: every piece of text is escaped, unless it is `Html` already.

Whoever names a plan or a module writes into a page that others trust. So control characters, and the
marks that turn the order of writing round, are shown by their code and not obeyed.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


class Html(str):
    """Markup that may be written as it is."""

    __slots__ = ()


Child = str | Iterable["Child"] | None
Attribute = str | int | float | bool | None

_VOID = frozenset({"br", "meta", "link", "hr"})
_HARMLESS = re.compile("[A-Za-z0-9 .,:;%()#/+_-]*").fullmatch
"""Whether text needs no look, which most does not."""
_HIDDEN = frozenset({"Cc", "Cf", "Cs", "Zl", "Zp"})
_JOINERS = "\u200c\u200d"
"""Format characters that ordinary words and signs are made with."""


def visible(text: str) -> str:
    """The text with what cannot be seen, or would turn or break a line, shown as `\\u202e`."""
    if text.isprintable():
        return text
    return "".join(
        c
        if c.isprintable() or c in _JOINERS or unicodedata.category(c) not in _HIDDEN
        else f"\\u{ord(c):04x}"
        for c in text
    )


def text_of(child: Child) -> str:
    """A child as markup: text is escaped, markup stays, a sequence is joined, None is nothing."""
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return _escaped(child)
    return "".join(map(text_of, child))


def _escaped(text: str) -> str:
    return text if _HARMLESS(text) else escape(visible(text))


def join(*children: Child) -> Html:
    """Markup of several pieces in a row."""
    return Html(text_of(children))


def el(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """One element. `class_` is `class`, `data_head` is `data-head`; None and False are left out."""
    written = "".join(
        f" {_name(key)}" if value is True else f' {_name(key)}="{_escaped(str(value))}"'
        for key, value in attributes.items()
        if value is not None and value is not False
    )
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{text_of(children)}</{name}>")


def _name(key: str) -> str:
    return key.rstrip("_").replace("_", "-")


@dataclass(frozen=True)
class Column:
    """The head of a column, its unit included."""

    head: str
    number: bool = False
    code: bool = False
    """Digests and names of code."""
    word: bool = False
    """Short words, which do not break."""


@dataclass(frozen=True)
class Group:
    """Rows that belong together, under a heading of their own or none."""

    rows: Sequence[Sequence[Child]]
    heading: Child = None


def table(columns: Sequence[Column], groups: Sequence[Group], caption: str, css: str = "") -> Html:
    """A table whose first column names its rows. Each group of rows is a body of its own.

    With the class `wide`, each row stands as a list in a narrow window, every figure with the head of
    its column before it; with `untitled` the caption is for those who cannot see what stands above.
    """
    kinds = [
        " ".join(filter(None, ("num" * c.number, "code" * c.code, "word" * c.word))) or None
        for c in columns
    ]
    heads = [
        el("th", column.head, scope="col", class_=kind)
        for column, kind in zip(columns, kinds, strict=True)
    ]

    is_wide = "wide" in css.split()

    def row(cells: Sequence[Child]) -> Html:
        first, *rest = cells
        return el(
            "tr",
            el("th", first, scope="row", class_=kinds[0]),
            [
                el("td", cell, class_=kind, data_head=column.head if is_wide else None)
                for cell, column, kind in zip(rest, columns[1:], kinds[1:], strict=True)
            ],
        )

    def body(group: Group) -> Html:
        named = (
            el("th", group.heading, scope="rowgroup", colspan=len(columns)) if group.heading else None
        )
        return el("tbody", el("tr", named, class_="heading") if named else None, map(row, group.rows))

    return el(
        "table",
        el("caption", caption),
        el("thead", el("tr", heads)),
        map(body, groups),
        class_=css or None,
    )


def facts(items: Iterable[tuple[str, Child]]) -> Html:
    """Labelled facts, one below the other or in columns."""
    return el(
        "dl", [el("div", el("dt", name), el("dd", value)) for name, value in items], class_="facts"
    )


def bullets(items: Iterable[Child]) -> Html:
    return el("ul", [el("li", item) for item in items])


def paragraph(*children: Child, css: str | None = None) -> Html:
    return el("p", *children, class_=css)


def code(text: str) -> Html:
    return el("code", text)
