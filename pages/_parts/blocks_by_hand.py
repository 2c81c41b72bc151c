"""The block map under the hand: a click on a block changes the choice that *Blocks by hand* holds."""

from functools import partial
from typing import Annotated

import streamlit as st
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recompute_core.spec import StudySpec
from recompute_core.studies.checking import Checked, check_state

from . import blocks
from .data import get_store
from .served import served
from .setup_form import BY_HAND
from .words import literal

KEY = "block map"


class Chosen(BaseModel):
    """What the browser says was clicked. Untrusted."""

    model_config = ConfigDict(frozen=True, strict=True)

    blocks: Annotated[list[Annotated[int, Field(ge=0, le=1023)]], Field(min_length=1, max_length=1024)]
    on: bool


def block_map(spec: StudySpec) -> None:
    """The map, and its legend."""
    state = check_state(get_store(), spec)
    by_hand = [int(number) for number in st.session_state.get(BY_HAND, [])]
    found = blocks.block_map(spec, by_hand, state if isinstance(state, Checked) else None)
    number = sum(one.number is not None for one in found.blocks)
    served("blocks", '<div class="rs-block-map"></div>')(
        key=KEY, data={"markup": blocks.drawn(found)}, on_chosen_change=partial(_chosen, number)
    )
    st.caption(literal(blocks.summary(found)))
    st.caption(literal(blocks.legend(found)))


def _chosen(number: int) -> None:
    """Take what was clicked into the choice, or out of it."""
    try:
        said = Chosen.model_validate((st.session_state.get(KEY) or {}).get("chosen"))
    except ValidationError:
        return
    st.session_state[BY_HAND] = chosen(st.session_state.get(BY_HAND, []), said, number)


def chosen(before: list[str], said: Chosen, number: int) -> list[str]:
    """The choice after a click, in the order of forward; blocks that the model lacks are none."""
    clicked = {block for block in said.blocks if block < number}
    held = {int(block) for block in before}
    return [str(block) for block in sorted(held | clicked if said.on else held - clicked)]
