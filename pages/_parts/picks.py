"""The one selection of Trade-off: candidates that picture, table and tabs show; kept in the address."""

from collections.abc import Collection, Sequence

import streamlit as st

from .choices import put

MOST = 50
"""So many are kept: an address has its limits."""
_PARAM = "pick"


def picked(study: str, known: Collection[str]) -> list[str]:
    """The candidates picked in this study; what is not one of it (`known`) is forgotten."""
    kept = st.session_state.setdefault("picked", {})
    asked = kept.get(study, st.query_params.get_all(_PARAM)[:MOST])
    kept[study] = [one for one in dict.fromkeys(asked) if one in known]
    put(_PARAM, kept[study])
    found: list[str] = kept[study]
    return found


def now(study: str) -> list[str]:
    """The candidates that are picked at this moment."""
    found: list[str] = st.session_state.get("picked", {}).get(study, [])
    return found


def pick(study: str, ids: Sequence[str]) -> None:
    """Pick these and no others; none means that all are shown."""
    st.session_state.setdefault("picked", {})[study] = list(dict.fromkeys(ids))[:MOST]
