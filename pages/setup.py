"""Set up: what shall be compared, under which thresholds?"""

import streamlit as st

from pages._parts import address, ask, chrome, markup, setup_form
from pages._parts.data import get_store, speed
from pages._parts.safety import safe_to_recompute
from pages._parts.words import duration, literal, millions
from recompute_core.errors import InputError
from recompute_core.gates import megabytes
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.spec import StudySpec
from recompute_core.studies.forecast import forecast
from recompute_core.words import MB_NOTE
from recompute_core.workloads.sizes import sizes_of


def main() -> None:
    """The choices from left to right as one thinks, and a strip at the foot that launches."""
    chrome.title("Set up", "What shall be compared, under which thresholds?")
    above = st.container()
    with st.container(key="stack-setup"):
        left, right = st.columns([1.1, 1], gap="large")
    with left:
        choices = setup_form.choices()
    with above:
        address.say_faults()
    if choices is None:
        return
    try:
        spec = ask.specification(choices)
    except InputError as error:
        spec = None
        with st.bottom:
            st.error(literal(str(error)))
    if spec is not None:
        with right:
            _preview(spec)
        safe_to_recompute(spec)
        with st.bottom:
            _strip(spec)


def _preview(spec: StudySpec) -> None:
    st.subheader("What will be measured", anchor=False)
    sizes = sizes_of(spec.at(spec.shapes[-1]), spec.precision)
    if sizes is not None:
        st.html(
            markup.facts(
                [
                    ("Parameters", f"{millions(sizes.parameters)}"),
                    ("State with gradients and AdamW", megabytes(sizes.state_bytes)),
                    ("Activations of one block, largest shape", megabytes(sizes.block_saved_bytes)),
                ]
            )
        )
    st.html(markup.block_map(ask.saved_estimates(spec), anatomy_of(spec.workload).blocks))
    if sizes is not None:
        st.html(
            markup.table(
                [("Shape", False), ("Plain keeps (MB)", True), ("Plain's peak (MB)", True)],
                ask.shape_estimates(spec),
            )
        )
    told = (
        "All figures here are estimated; –: not estimated yet."
        if sizes is not None
        else "Another's model is not estimated here; the command `estimate` does it."
    )
    st.caption(f"Filled: recomputed. Half: recomputed in part. Hollow: kept. {told} {MB_NOTE}")


def _strip(spec: StudySpec) -> None:
    expected = forecast(spec, speed(get_store(), spec.workload.name))
    known = [("Cells", f"{expected.cells:,}")]
    if expected.seconds is not None and expected.peak_bytes is not None:
        known += [
            ("Duration, estimated", f"about {duration(expected.seconds)}"),
            ("Memory, estimated", f"about {megabytes(expected.peak_bytes)} at most"),
        ]
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.facts(known))
        pressed = st.button(
            "Declare thresholds and launch", type="primary", key="launch", help=expected.basis
        )
    if pressed:
        chrome.launch_and_watch(spec)


main()
