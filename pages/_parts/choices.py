"""Choices of Trade-off that the address keeps: what is not among the options is left out."""

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st


def _start(study: str, param: str, options: Sequence[str], name: str) -> tuple[str, dict[str, Any]]:
    """The widget's key, set to what this session chose last, or else to what the address says."""
    kept: dict[str, Any] = st.session_state.setdefault("kept choices", {})
    key = f"{name} of {study}"
    if key not in st.session_state:
        asked = kept.get(key, st.query_params.get_all(param))
        st.session_state[key] = [option for option in options if option in asked]
    return key, kept


def put(param: str, chosen: Sequence[str]) -> None:
    """Write a choice into the address, or take it out where there is none."""
    if list(chosen) == st.query_params.get_all(param):
        return
    if chosen:
        st.query_params[param] = list(chosen)
    else:
        st.query_params.pop(param, None)


def several(
    study: str,
    param: str,
    options: Sequence[str],
    draw: Callable[[str], list[str]],
    name: str | None = None,
) -> list[str]:
    """Options chosen with the widget that `draw` makes under a key; none means all of them."""
    key, kept = _start(study, param, options, name or param)
    chosen = draw(key)
    kept[key] = chosen
    put(param, chosen)
    return chosen


def forget(study: str, name: str) -> None:
    """Choose none of the options; to be called before the widget is drawn."""
    key = f"{name} of {study}"
    st.session_state[key] = []
    st.session_state.setdefault("kept choices", {})[key] = []


def switch(study: str, label: str, param: str, word: str, usual: bool, **more: Any) -> bool:
    """A toggle; in the address `param=word` says that it stands otherwise than usual."""
    kept: dict[str, Any] = st.session_state.setdefault("kept choices", {})
    key = f"{param} of {study}"
    if key not in st.session_state:
        st.session_state[key] = kept.get(key, usual is not (st.query_params.get(param) == word))
    on = st.toggle(label, key=key, **more)
    kept[key] = on
    put(param, [] if on is usual else [word])
    return on
