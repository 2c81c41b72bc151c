"""The picture whose lines are dragged and whose points are picked: a component of our own."""

from collections.abc import Callable
from typing import Annotated

import streamlit as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from .served import served

KEY = "hand on the picture"
HTML = '<div class="picture"></div>'
"""The same wherever the picture is drawn: a component's name stands for one text of HTML."""


class Hand(BaseModel):
    """What the browser says the hand has done. Untrusted: thresholds are checked once more as such."""

    model_config = ConfigDict(frozen=True, strict=True)

    seq: Annotated[int, Field(ge=0, le=2**53)]
    """Counts what was said; the answer names the last one heard."""
    peak: Annotated[float, Field(allow_inf_nan=False)]
    update: Annotated[float, Field(allow_inf_nan=False)]
    picked: Annotated[list[Annotated[str, Field(max_length=300)]], Field(max_length=5000)]


def hand() -> Hand | None:
    """What the hand has done last; None where that makes no sense."""
    state = st.session_state.get(KEY) or {}
    try:
        return Hand.model_validate(state.get("hand"))
    except ValidationError:
        return None


def draggable(data: dict[str, object], on_hand: Callable[[], None]) -> None:
    """Draws the picture of `plotted.document`; `on_hand` is called when the hand has moved."""
    picture = served("picture", HTML, isolated=True)
    picture(key=KEY, data=data, on_hand_change=on_hand)
