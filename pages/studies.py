"""Studies: what was measured before; what changed since?"""

import hashlib

import streamlit as st

from pages._parts import chrome, markup
from pages._parts.data import get_store
from pages._parts.history import VERDICT_CHOICES, has_long_names, history_table, in_full, kept, workloads
from pages._parts.words import MISSING, TALL_ROW_PX, literal
from recompute_core.studies.salvage import were_set_aside
from recompute_core.studies.store import Store, StudyRow
from recompute_core.words import count

_MOST = 5000


def main() -> None:
    """The history, narrowed by what is searched for; one row opens, two are compared."""
    store = get_store()
    chrome.title("Studies", "What was measured before; what changed since?")
    rows, all_of_them = store.studies(limit=_MOST), store.count()
    if not rows:
        chrome.nothing_yet()
        _unlisted(all_of_them, 0)
        _set_aside(store)
        return
    shown = _narrowed(rows)
    _counts(rows, shown)
    if not shown:
        st.info("No study fits this search.")
        st.button("Show all studies", on_click=_show_all)
    else:
        _list(shown)
    _unlisted(all_of_them, len(rows))
    _set_aside(store)


def _narrowed(rows: list[StudyRow]) -> list[StudyRow]:
    """What the fields above the list leave of it; they stand in the address."""
    with st.container(horizontal=True, vertical_alignment="bottom", key="history-search"):
        text = st.text_input(
            "Search",
            key="q",
            type="search",
            placeholder="plan, shape, device, date, id",
            max_chars=200,
            bind="query-params",
            width=300,
            help="Every word must be found somewhere in a study.",
        )
        workload = st.selectbox(
            "Workload", workloads(rows), index=None, key="of", bind="query-params", width=190,
            placeholder="all",
        )  # fmt: skip
        verdicts = st.pills(
            "Verdict", VERDICT_CHOICES, selection_mode="multi", key="verdict", bind="query-params"
        )
    return kept(rows, text or "", workload, verdicts)


def _set_aside(store: Store) -> None:
    """A store that was found damaged stands beside this one until somebody removes it."""
    for damaged in were_set_aside(store.path):
        st.caption(
            literal(
                f"A store was found damaged and set aside as {damaged.name}, in {store.home}. "
                "What could be read of it is in this list; remove the file when you need it no longer."
            )
        )


def _show_all() -> None:
    st.session_state["q"], st.session_state["of"], st.session_state["verdict"] = "", None, []


def _counts(rows: list[StudyRow], shown: list[StudyRow]) -> None:
    all_of_them = count(len(rows), "study", "studies")
    line = all_of_them if len(shown) == len(rows) else f"{len(shown):,} of {all_of_them}"
    left = [row for row in rows if row.status in ("interrupted", "cancelled", "incomplete")]
    line += ", newest first."
    if left:
        line += (
            f" {count(len(left), 'study is', 'studies are')} not complete and can be resumed from Live."
        )
    st.caption(line)


def _list(shown: list[StudyRow]) -> None:
    # A selection is of row numbers: when other studies are listed it must not move on to them.
    listed = hashlib.sha256(" ".join(row.id for row in shown).encode()).hexdigest()[:16]
    foot = st.container(key="history-chosen")
    row_px = TALL_ROW_PX if any(map(has_long_names, shown)) else 36
    picked = st.dataframe(
        history_table(shown, get_store().spans()),
        hide_index=True,
        on_select="rerun",
        selection_mode="multi-row",
        key=f"history {listed}",
        placeholder=MISSING,
        height=min(44 + row_px * len(shown), 640),
        row_height=row_px,
        column_config={
            "Verdict": st.column_config.TextColumn(width=140),
            "Workload": st.column_config.TextColumn(width=140),
            "Shapes": st.column_config.TextColumn(width=150),
            "Plans": st.column_config.TextColumn(width=220),
            "Started (UTC)": st.column_config.DatetimeColumn(width=160, format="D MMM YYYY, HH:mm"),
            "Took": st.column_config.TextColumn(
                width=60, help="From the first event to the last; pauses of a resumed study are in it."
            ),
            "Device": st.column_config.TextColumn(width=160),
            "Threads": st.column_config.NumberColumn(width=70),
            "torch": st.column_config.TextColumn(width=105),
            "Python": st.column_config.TextColumn(width=70),
            "Study": st.column_config.TextColumn(width=190),
        },
        alt="Every study of this machine: verdict, workload, shapes, plans, date, duration, device and "
        "versions",
    )
    with foot:
        _chosen([shown[index] for index in picked.selection.rows if index < len(shown)])


def _chosen(rows: list[StudyRow]) -> None:
    """What can be done with the rows that are chosen."""
    with st.container(horizontal=True, vertical_alignment="center"):
        if len(rows) == 1:
            page = "tradeoff.py" if rows[0].status in ("done", "incomplete") else "live.py"
            _go("Open the study", page, {"study": rows[0].id})
            st.caption("Choose a second row to compare the two.", width="content")
        elif len(rows) == 2:
            earlier, later = sorted(rows, key=lambda row: (row.created_at, row.id))
            _go("Compare the two", "compare.py", {"a": earlier.id, "b": later.id})
            st.caption("The earlier is A, the later B.", width="content")
        elif rows:
            st.caption(f"{len(rows)} rows are chosen: one can be opened, two compared.")
        else:
            st.caption("Choose one row to open it, or two to compare them. One alone is shown in full.")

    if len(rows) == 1:
        st.html(markup.facts(in_full(rows[0])))


def _go(label: str, page: str, params: dict[str, str]) -> None:
    if st.button(label, type="primary"):
        st.switch_page(page, query_params=params)


def _unlisted(all_of_them: int, listed: int) -> None:
    """Whatever the store holds and this list does not."""
    left = all_of_them - listed
    if listed == _MOST and left:
        st.caption(f"These are the newest {_MOST:,}; {left:,} more are in the store.")
    elif left:
        st.caption(
            f"{count(left, 'study', 'studies')} of this store cannot be read: damaged, or written by "
            "another version. Nothing of it was changed."
        )


main()
