"""The main script: what stands around every page. Which study is shown lives in the address."""

from pathlib import Path

import streamlit as st

from pages._parts import chrome
from pages._parts.data import get_store, wanted_study
from pages._parts.login import require_login
from pages._parts.words import literal
from recompute_core.errors import InputError, StoreError, StudyError

PARTS = Path(__file__).parent / "_parts"
GROUPS = {
    "Explore": [
        st.Page("home.py", title="Home", icon=":material/home:", default=True),
        st.Page("demo.py", title="Demo", icon=":material/slideshow:", url_path="demo"),
        st.Page("setup.py", title="Set up", icon=":material/tune:", url_path="set-up"),
        st.Page("live.py", title="Live", icon=":material/timeline:", url_path="live"),
        st.Page("tradeoff.py", title="Trade-off", icon=":material/scatter_plot:", url_path="tradeoff"),
    ],
    "Decide": [
        st.Page("reinvest.py", title="Reinvest", icon=":material/savings:", url_path="reinvest"),
        st.Page("decision.py", title="Decision", icon=":material/gavel:", url_path="decision"),
        st.Page("verify.py", title="Verify", icon=":material/verified_user:", url_path="verify"),
    ],
    "Keep": [
        st.Page("studies.py", title="Studies", icon=":material/history:", url_path="studies"),
        st.Page("compare.py", title="Compare", icon=":material/compare_arrows:", url_path="compare"),
    ],
}


def _moved() -> None:
    st.switch_page("tradeoff.py", query_params=st.query_params.to_dict())


# Pages that show nothing without a study.
OF_A_STUDY = ("demo", "live", "tradeoff", "result", "reinvest", "decision")

# Where links to Trade-off led when it was called Result.
OLD_RESULT = st.Page(_moved, title="Trade-off", url_path="result")

st.set_page_config(
    page_title="Recompute Studio",
    page_icon=str(PARTS / "icon.svg"),
    layout="wide",
    menu_items={
        "About": "Recompute Studio decides, with evidence, whether a training job should recompute "
        "activations, where, and at what price. Every figure is measured on this machine or says "
        "that it is not."
    },
)
st.html(PARTS / "style.css")
page = st.navigation({**GROUPS, "": [OLD_RESULT]}, position="hidden")
require_login()

try:
    store = get_store()
    asked = wanted_study()
    unknown = None
    why = "There is no study “{}” here."
    if asked is not None:
        try:
            store.study(asked)
        except InputError:
            unknown = asked
        except StudyError:
            unknown, why = asked, "The study “{}” is damaged or was written by another version."
    chrome.sidebar(store, GROUPS, unknown)
    if unknown is not None:
        if page.url_path in OF_A_STUDY:
            st.title(page.title, anchor=False)
        said = why.format(literal(unknown[:40]))
        st.error(f"{said} The Studies page lists what was measured.")
        st.page_link("studies.py", label="Open the studies")
        if page.url_path in OF_A_STUDY:
            st.stop()
    page.run()
except StoreError as error:
    st.error(literal(str(error)))
