"""Set up: what shall be compared, under which thresholds?"""

import streamlit as st

from pages._parts import address, ask, chrome, markup, setup_form, setup_job
from pages._parts.blocks_by_hand import block_map
from pages._parts.data import get_store, speed
from pages._parts.estimated import fit
from pages._parts.safety import safe_to_recompute
from pages._parts.words import CELL_MEANING, duration, literal, millions, threads_line
from recompute_core.errors import InputError
from recompute_core.gates import megabytes
from recompute_core.spec import StudySpec
from recompute_core.studies.forecast import forecast, slowest_pair_s
from recompute_core.words import MB_NOTE


def main() -> None:
    """What is trained and how it is judged, the model block by block, and a strip that launches."""
    chrome.title("Set up", "What shall be compared, under which thresholds?")
    above = st.container()
    with st.container(key="stack-setup"):
        left, right = st.columns(2, gap="large")
    with right:
        shapes, estimates, limits = st.container(), st.container(), st.container()
    choices = setup_form.choices(setup_form.Places(left, shapes, limits))
    with above:
        address.say_faults()
    if choices is None:
        return
    try:
        spec = ask.specification(choices)
    except InputError as error:
        with st.bottom:
            st.error(literal(str(error)))
        return
    with (
        above,
        st.expander(
            "My run is out of memory: what fits?", expanded=st.query_params.get("fit") == "open"
        ),
    ):
        fit(spec)
    with estimates:
        _estimates(spec)
        pair_s = slowest_pair_s(spec, speed(get_store(), spec.workload.name))
        st.caption(ask.timing_words(spec.timing, pair_s))
    st.subheader("Blocks", anchor=False)
    block_map(spec)
    safe_to_recompute(spec)
    with st.bottom:
        _strip(spec)


def _estimates(spec: StudySpec) -> None:
    sizes = ask.largest_sizes(spec)
    if sizes is None:
        st.caption("Another's model is not estimated here; the command `estimate` does it.")
        return
    st.html(
        markup.table(
            [("Shape", False), ("Plain keeps (MB)", True), ("Plain's peak (MB)", True)],
            ask.shape_estimates(spec),
        )
    )
    st.caption(
        f"Estimated: {millions(sizes.parameters)} parameters, {megabytes(sizes.state_bytes)} of state "
        f"with gradients and AdamW{_of_one_process(spec)}. {MB_NOTE}"
    )


def _of_one_process(spec: StudySpec) -> str:
    """What these estimates are of, where the study is of something else."""
    return ", for one process, not compiled" if spec.ranks or spec.compile else ""


def _strip(spec: StudySpec) -> None:
    expected = forecast(spec, speed(get_store(), spec.workload.name))
    known = [("Cells", f"{expected.cells:,}"), ("Threads", threads_line(spec, {}))]
    if expected.seconds is not None and expected.peak_bytes is not None:
        known += [
            ("Duration, estimated", f"about {duration(expected.seconds)}"),
            ("Memory, estimated", f"about {megabytes(expected.peak_bytes)} at most"),
        ]
    else:
        known.append(("Duration and memory", expected.basis))
    refused = setup_job.refused(spec)
    if refused is not None:
        st.error(literal(refused))
    with st.container(horizontal=True, vertical_alignment="center"):
        st.html(markup.facts(known))
        pressed = st.button(
            "Declare thresholds and launch",
            type="primary",
            key="launch",
            disabled=refused is not None,
            help=f"{CELL_MEANING}. Duration and memory: {expected.basis}.",
        )
    if pressed:
        chrome.launch_and_watch(spec)


main()
