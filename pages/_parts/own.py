"""Another's model on Set up: named, built once by a process of its own, its blocks shown."""

import streamlit as st

from recompute_core.errors import InputError
from recompute_core.settings import OURS, OwnSettings
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.looking import looked_up
from recompute_core.words import count
from recompute_core.workloads.registered import registered, resolve

from .words import literal

EXAMPLES = (
    "hf:LlamaConfig?num_hidden_layers=4&hidden_size=256&intermediate_size=512&vocab_size=1000",
    "hf:BertConfig?num_hidden_layers=4&hidden_size=256&num_attention_heads=8&vocab_size=1000",
    "timm:vit_tiny_patch16_224?depth=4",
)


def chosen() -> OwnSettings | None:
    """The model that is named, with its anatomy; None where none is named or it cannot be built."""
    try:
        names = [f"own:{name}" for name in registered()]
    except InputError as error:
        st.error(literal(str(error)))
        names = []
    name = st.selectbox(
        "Model",
        [*names, *EXAMPLES],
        index=None,
        accept_new_options=True,
        key="model",
        bind="query-params",
        placeholder="hf:…, timm:… or own:…",
        help="A configuration class of transformers or a model of timm, with random weights and nothing "
        "downloaded. Models of your own are registered when the server starts, by RECOMPUTE_WORKLOADS.",
    )
    if not name:
        _examples()
        return None
    return _looked(name)


def _examples() -> None:
    """One of each kind of name: clicked, or copied."""
    st.caption("Name a model; its blocks are found by building it once. For example:")
    for example in (EXAMPLES[0], EXAMPLES[-1]):
        st.button(
            literal(example), key=example, type="tertiary", icon=":material/arrow_upward:",
            on_click=_take, args=(example,), help="Puts this name into the field.",
        )  # fmt: skip
    st.caption(
        "A function of your own, which returns a model and a batch, is registered when the server "
        "starts, and is then the first of the list:"
    )
    st.code(
        "RECOMPUTE_WORKLOADS=mine=package.module:function streamlit run app.py",
        language=None,
        wrap_lines=True,
    )


def _take(example: str) -> None:
    st.session_state["model"] = example


def _looked(name: str) -> OwnSettings | None:
    failed = st.session_state.get("look failed")
    if failed and failed[0] == name:
        st.error(literal(failed[1]))
        if not st.button("Look again", key="look again"):
            return None
    try:
        with st.spinner("Building the model to find its blocks"):
            found = _look(name, registered())
    except InputError as error:
        st.session_state["look failed"] = (name, str(error))
        st.rerun()
    st.session_state.pop("look failed", None)
    _say(found)
    return found


@st.cache_data(show_spinner=False, max_entries=64, ttl=600)
def _look(name: str, factories: dict[str, str]) -> OwnSettings:
    """What a model is made of; built once in ten minutes, as its code may change."""
    if name in OURS:
        raise InputError(f"{name}: is chosen above; here is the place of hf:, timm: and own: names")
    spec: StudySpec = looked_up(parse_spec({"workload": resolve(name, None)}, "Model"))
    assert isinstance(spec.workload, OwnSettings)
    return spec.workload


def _say(found: OwnSettings) -> None:
    assert found.anatomy is not None
    anatomy = found.anatomy
    known = ", ".join(map(literal, anatomy.parts))
    parts = f"; known parts: {known}" if known else "; no part is known as norm, attention or MLP"
    names = " to ".join(literal(name) for name in dict.fromkeys((anatomy.names[0], anatomy.names[-1])))
    st.caption(f"{count(anatomy.blocks, 'block')}, {names}{parts}.")
