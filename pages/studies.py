"""Studies: what was measured before?"""

import streamlit as st

from pages._parts import chrome
from pages._parts.data import get_store
from pages._parts.tables import studies_table
from recompute_core.words import count


def main() -> None:
    """The history; choosing a row opens it."""
    store = get_store()
    rows = store.studies()
    chrome.title("Studies", "What was measured before?")
    if not rows:
        chrome.nothing_yet()
        return
    left = [row for row in rows if row.status in ("interrupted", "cancelled", "incomplete")]
    line = f"{count(len(rows), 'study', 'studies')}, newest first."
    if left:
        line += (
            f" {count(len(left), 'study is', 'studies are')} not complete and can be resumed from Live."
        )
    st.caption(line + " Choose a row to open it.")
    picked = st.dataframe(
        studies_table(rows),
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="history",
        height=min(44 + 36 * len(rows), 640),
        row_height=36,
        column_config={
            "Verdict": st.column_config.TextColumn(width=170),
            "Plans": st.column_config.TextColumn(width="medium"),
        },
        alt="Every study of this machine: verdict, workload, shapes, plans, date and device",
    )
    chosen = picked.selection.rows
    if chosen:
        row = rows[chosen[0]]
        page = "tradeoff.py" if row.status in ("done", "incomplete") else "live.py"
        st.switch_page(page, query_params={"study": row.id})


main()
