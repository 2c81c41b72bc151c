"""Which two studies *Compare* sets side by side: chosen, in the address, or one from a file."""

import hashlib
from dataclasses import dataclass

import streamlit as st

from recompute_core.comparing.imported import read_document
from recompute_core.errors import InputError
from recompute_core.results import StudyResult
from recompute_core.studies.store import Store, StudyRow
from recompute_core.words import in_utc

from .choices import put
from .data import snapshot, wanted_study
from .words import literal, shapes_line, study_label

FILE = "file"
"""In the place of a study's id: one that is dropped on the page."""
MOST_MB = 20
_KEPT, _READ = "sides compared", "study from a file"
_AT = "study when compared"
SIDES = ("a", "b")


@dataclass(frozen=True)
class SideChosen:
    """One of the two studies."""

    result: StudyResult
    supplied: bool
    """Whether it was read from a file."""

    @property
    def has_figures(self) -> bool:
        """Whether anything of a candidate has been measured."""
        return any(one.candidate.memory or one.candidate.timing for one in self.result.judged)


def choose(store: Store, rows: list[StudyRow]) -> tuple[SideChosen | None, SideChosen | None]:
    """The two fields, the file between them, and what they name; None where a side is still open."""
    ids = [row.id for row in rows]
    _begin(rows)
    labels = {row.id: label(row) for row in rows} | {FILE: "A file, from another machine"}
    asked = _asked(ids)
    with st.container(horizontal=True, vertical_alignment="bottom", key="compare-fields"):
        for side in SIDES:
            _field(side, asked[side], [FILE, *ids], labels)
        st.button(
            "Swap",
            on_click=_swap,
            args=(asked["a"], asked["b"]),
            help="A becomes B, and B becomes A: every difference turns its sign.",
        )
    if asked["a"] == asked["b"] == FILE:
        st.warning("One of the two may be a file; choose a study of this machine for the other.")
        return None, None
    dropped = _dropped() if FILE in asked.values() else None
    a, b = (_chosen(store, asked[side], dropped) for side in SIDES)
    return a, b


def label(row: StudyRow) -> str:
    """A study in a list of many: it must not change while the study goes on."""
    moment = in_utc(row.created_at)
    # What tells two studies apart comes first: a narrow field shows no more than the beginning.
    return (
        f"{study_label(row.spec)}, {moment:%-d %b %Y, %H:%M:%S} UTC, {row.id[-4:]}, "
        f"{shapes_line(row.spec)}"
    )


def usual(rows: list[StudyRow], study: str | None) -> dict[str, str]:
    """The study that all pages show, or else the newest, and the newest other one of its workload; where
    there are but two studies, these two.

    The earlier is A. Nothing where there is no such pair. `rows` are newest first; of the others, one
    with a verdict goes before one without.
    """
    if not rows:
        return {}
    one = next((row for row in rows if row.id == study), rows[0])
    others = [row for row in rows if row.id != one.id]
    if len(others) > 1:
        others = [row for row in others if row.spec.workload.name == one.spec.workload.name]
    if not others:
        return {}
    other = next((row for row in others if row.verdict), others[0])
    a, b = sorted((one, other), key=lambda row: (row.created_at, row.id))
    return {"a": a.id, "b": b.id}


def _begin(rows: list[StudyRow]) -> None:
    """Put a pair into an address that names none: what this session compared last, while it is at the
    same study, or else the usual one."""
    study = wanted_study()
    kept = st.session_state.setdefault(_KEPT, {})
    if not any(side in st.query_params for side in SIDES):
        pair = kept if kept and st.session_state.get(_AT) == study else usual(rows, study)
        for side, value in pair.items():
            st.query_params[side] = value
    st.session_state[_AT] = study


def _asked(ids: list[str]) -> dict[str, str | None]:
    """What each side is by the address, or else unset.

    Whatever it names that is not here is dropped from it, and said.
    """
    asked: dict[str, str | None] = {}
    for side in SIDES:
        given = st.query_params.get(side)
        if given is not None and given != FILE and given not in ids:
            st.error(f"{side.upper()}: there is no study “{literal(given[:40])}” here that can be read.")
            st.query_params.pop(side, None)
            given = None
        asked[side] = given
    st.session_state[_KEPT] = {side: value for side, value in asked.items() if value}
    return asked


def _field(side: str, chosen: str | None, options: list[str], labels: dict[str, str]) -> None:
    key = f"compare {side}"
    st.session_state[key] = chosen
    st.selectbox(
        {"a": "A, the earlier or the usual", "b": "B, set against it"}[side],
        options,
        format_func=lambda one: labels[one],
        key=key,
        placeholder="Choose a study",
        on_change=_picked,
        args=(side, key),
    )


def _picked(side: str, key: str) -> None:
    chosen = st.session_state[key]
    if chosen is None:
        st.query_params.pop(side, None)
        st.session_state.get(_KEPT, {}).pop(side, None)
    else:
        st.query_params[side] = chosen


def _swap(a: str | None, b: str | None) -> None:
    for side, value in (("a", b), ("b", a)):
        put(side, [value] if value else [])
    st.session_state[_KEPT] = {}


def _dropped() -> StudyResult | None:
    """The study in the file that is dropped, read once; one line where it is none."""
    file = st.file_uploader(
        f"The result of a study as JSON, at most {MOST_MB} MB",
        type="json",
        max_upload_size=MOST_MB,
        key="study to compare",
        help="Written by 'study --json' or by 'Download the result as JSON' of Trade-off. It stays in "
        "this server's memory until you remove it or leave; it is written nowhere, and nothing in it is "
        "run.",
    )
    if file is None:
        st.session_state.pop(_READ, None)
        return None
    data = file.getvalue()
    digest = hashlib.sha256(data).digest()
    kept = st.session_state.get(_READ)
    if kept is None or kept[0] != digest:
        try:
            with st.spinner("Reading"):
                found: StudyResult | str = read_document(data, "The file")
        except InputError as error:
            found = str(error)
        kept = st.session_state[_READ] = (digest, found)
    if isinstance(kept[1], str):
        st.error(literal(kept[1]))
        return None
    read: StudyResult = kept[1]
    return read


def _chosen(store: Store, asked: str | None, dropped: StudyResult | None) -> SideChosen | None:
    if asked == FILE:
        return SideChosen(dropped, True) if dropped else None
    return SideChosen(snapshot(store, asked).result, False) if asked else None
