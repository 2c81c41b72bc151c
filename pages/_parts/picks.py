"""The one selection of Trade-off: candidates that picture, table and tabs show; kept in the address."""

from collections.abc import Collection, Sequence

import streamlit as st

MOST = 50
"""So many are kept: an address has its limits."""
_PARAM = "pick"


def picked(study: str, known: Collection[str]) -> list[str]:
    """The candidates picked in this study; what is not one of it (`known`) is left out."""
    kept = st.session_state.setdefault("picked", {})
    if study not in kept:
        kept[study] = st.query_params.get_all(_PARAM)[:MOST]
    ids = [one for one in dict.fromkeys(kept[study]) if one in known]
    if ids != st.query_params.get_all(_PARAM):
        if ids:
            st.query_params[_PARAM] = ids
        else:
            st.query_params.pop(_PARAM, None)
    return ids


def pick(study: str, ids: Sequence[str]) -> None:
    """Pick these and no others; none means that all are shown."""
    st.session_state.setdefault("picked", {})[study] = list(dict.fromkeys(ids))[:MOST]
