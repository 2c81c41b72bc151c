"""Set up: what shall be compared, under which thresholds?"""

from typing import Any

import streamlit as st

from pages._parts import ask, chrome, markup, own
from pages._parts.data import get_store, speed
from pages._parts.safety import safe_to_recompute
from pages._parts.words import GATE_MEANINGS, duration, literal, millions
from recompute_core.errors import InputError
from recompute_core.gates import megabytes
from recompute_core.plans.anatomy import anatomy_of
from recompute_core.settings import OURS, Anatomy, OwnSettings, ReceiptsSettings
from recompute_core.spec import CheckpointSettings, StudySpec, Thresholds
from recompute_core.studies.forecast import forecast
from recompute_core.words import MB_NOTE
from recompute_core.workloads.sizes import sizes_of

_LENGTHS = {
    "gpt": ["64", "128", "256", "512", "768", "1024"],
    "receipts": ["128x64", "192x96", "256x128", "384x192"],
    "hf": ["32", "64", "128", "256", "512"],
}
_FIRST_LENGTHS = {"gpt": ["128", "256"], "receipts": ["192x96"]}
_BATCHES = {
    "gpt": ["1", "2", "4", "8", "16"],
    "receipts": ["4", "8", "16", "32"],
    "hf": ["1", "2", "4", "8", "16"],
    "timm": ["1", "2", "4", "8", "16"],
}
_FIRST_BATCH = {"gpt": ["4"], "receipts": ["16"]}
_SIZES = {"gpt": ("blocks", "width", "heads", "vocab"), "receipts": ("blocks", "width", "heads")}
_ANOTHER = "another model"


def main() -> None:
    """The choices from left to right as one thinks, and a strip at the foot that launches."""
    chrome.title("Set up", "What shall be compared, under which thresholds?")
    with st.container(key="stack-setup"):
        left, right = st.columns([1.1, 1], gap="large")
    with left:
        choices = _choices()
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


def _choices() -> ask.Choices | None:
    """What the fields hold; None while another's model is not known."""
    workload = _workload()
    _drop_wild_numbers()
    if workload == _ANOTHER:
        found = own.chosen()
        if found is None or found.anatomy is None:
            return None
        workload, settings = found.name, {"anatomy": found.anatomy}
        anatomy, first = found.anatomy, found
    else:
        settings = _sizes(workload)
        anatomy, first = anatomy_of(OURS[workload](blocks=settings["blocks"])), None
    recipes, by_hand, curve = _plans(anatomy)
    lengths, batches = _shapes(workload, first)
    thresholds = _thresholds()
    checkpoint, more, effort, precision = _advanced(workload)
    return ask.Choices(
        workload=workload,
        settings={**settings, **more},
        lengths=lengths,
        batches=batches,
        recipes=recipes,
        by_hand=by_hand,
        curve=curve,
        thresholds=thresholds,
        checkpoint=checkpoint,
        effort=effort,
        precision=precision,
    )


def _drop_wild_numbers() -> None:
    """Take out of the address what no number field can hold, such as 1e400."""
    for key in list(st.query_params):
        if key != "model" and any(map(ask.is_wild, st.query_params.get_all(key))):
            del st.query_params[key]


def _workload() -> str:
    st.subheader("Workload", anchor=False)
    workload = st.segmented_control(
        "Workload",
        [*OURS, _ANOTHER],
        default="gpt",
        required=True,
        key="workload",
        bind="query-params",
        label_visibility="collapsed",
    )
    name = workload or "gpt"
    st.caption((OURS[name].__doc__ or "").strip() if name in OURS else _ANOTHERS_CAPTION)
    return name


_ANOTHERS_CAPTION = "A model of transformers or timm by name, or one that is registered on this server."


def _sizes(workload: str) -> dict[str, Any]:
    model = OURS[workload]
    settings: dict[str, Any] = {}
    with st.expander("Model sizes"):
        fields = st.columns(len(_SIZES[workload]))
        for place, name in zip(fields, _SIZES[workload], strict=True):
            with place:
                settings[name] = st.number_input(
                    name.capitalize(),
                    min_value=1,
                    max_value=1024 if name == "blocks" else 2**31 - 1,
                    value=model.model_fields[name].default,
                    key=f"{workload}_{name}",
                    bind="query-params",
                    help=model.model_fields[name].description,
                )
    return settings


def _plans(anatomy: Anatomy) -> tuple[list[str], list[int], bool]:
    st.subheader("Plans", anchor=False)
    st.caption("Each is a candidate compared with plain, which is always measured.")
    recipes = st.pills(
        "Whole blocks",
        ask.BLOCK_RECIPES,
        selection_mode="multi",
        default=["every-block", "every-2nd-block"],
        key="plans",
        wrap=True,
        bind="query-params",
    )
    finer = st.pills(
        "Finer than blocks",
        ask.FINER_RECIPES,
        selection_mode="multi",
        key="finer",
        wrap=True,
        bind="query-params",
        help="Recompute parts of every block, or every block but what is kept of it.",
    )
    left, right = st.columns([1.2, 1], vertical_alignment="bottom")
    with left:
        by_hand = st.multiselect(
            "Blocks by hand",
            [str(number) for number in range(anatomy.blocks)],
            key="by_hand",
            bind="query-params",
            placeholder="Choose blocks to recompute",
            help="One more plan that recomputes exactly these blocks.",
        )
    with right:
        curve = st.toggle(
            "Selective curve",
            key="curve",
            bind="query-params",
            help="Recompute the first 0, 1, 2 … all blocks in turn: saved bytes, peak and update "
            "time for each.",
        )
    return [*recipes, *finer], [int(number) for number in by_hand], curve


def _shapes(workload: str, own_sizes: OwnSettings | None) -> tuple[list[str], list[str]]:
    """Lengths or photo shapes, and batch sizes, of what the workload has of them."""
    known = ask.sizes_in(workload)
    kind = own_sizes.kind if own_sizes else workload
    lengths: list[str] = []
    batches: list[str] = []
    if not known:
        return lengths, batches  # a factory brings its own batch
    st.subheader("Shapes", anchor=False)
    left, right = st.columns([1.2, 1])
    if known != ("batch",):
        with left:
            lengths = st.multiselect(
                "Sequence lengths (tokens)"
                if "seq_len" in known
                else "Photo shapes (height x width, pixels)",
                _LENGTHS[kind],
                default=[str(own_sizes.seq_len)] if own_sizes else _FIRST_LENGTHS[kind],
                accept_new_options=True,
                key=f"{kind}_lengths",
                bind="query-params",
                placeholder="Choose, or type your own",
                help="Type a value of your own and press Enter.",
            )
    with right if lengths else left:
        batches = st.multiselect(
            "Batch sizes",
            _BATCHES[kind],
            default=[str(own_sizes.batch)] if own_sizes else _FIRST_BATCH[kind],
            accept_new_options=True,
            key=f"{kind}_batches",
            bind="query-params",
            placeholder="Choose, or type your own",
            help="Every length is measured at every batch size.",
        )
    return list(lengths), list(batches)


def _thresholds() -> dict[str, float]:
    st.subheader("Thresholds", anchor=False)
    st.caption("Declared when the study is launched; moving one afterwards is a what-if.")
    usual = Thresholds()
    (peak, update), (gap, relative) = st.columns(2), st.columns(2)
    with peak:
        peak_ratio = st.number_input(
            "Peak, at most", value=usual.peak_ratio, step=0.01, format="%.2f", key="max_peak",
            bind="query-params", help=GATE_MEANINGS["memory_saving"],
        )  # fmt: skip
        st.caption(f"{peak_ratio:.0%} of plain's")
    with update:
        update_ratio = st.number_input(
            "Update, at most", value=usual.update_ratio, step=0.01, format="%.2f", key="max_update",
            bind="query-params", help=GATE_MEANINGS["update_latency"],
        )  # fmt: skip
        st.caption(f"{update_ratio:.2f} times plain's")
    with gap:
        gradient_gap = st.number_input(
            "Gradient gap", value=usual.gradient_gap, step=1e-5, format="%.0e", key="max_gap",
            bind="query-params", help=GATE_MEANINGS["gradient_parity"],
        )  # fmt: skip
        st.caption("absolute, any gradient")
    with relative:
        relative_gap = st.number_input(
            "Relative gap", value=usual.relative_gap, step=1e-5, format="%.0e", key="max_relative",
            bind="query-params", help=Thresholds.model_fields["relative_gap"].description,
        )  # fmt: skip
        st.caption("to the tensor's own size")
    return {
        "peak_ratio": peak_ratio,
        "update_ratio": update_ratio,
        "gradient_gap": gradient_gap,
        "relative_gap": relative_gap,
    }


def _advanced(workload: str) -> tuple[dict[str, Any], dict[str, Any], str, str]:
    more: dict[str, Any] = {}
    fields = CheckpointSettings.model_fields
    with st.expander("Advanced"):
        left, middle, right = st.columns(3)
        with left:
            variant = st.selectbox(
                "Variant", ("call", "forward"), key="variant", bind="query-params",
                help=fields["variant"].description,
            )  # fmt: skip
        with middle:
            rng = st.selectbox(
                "Random state", ("preserve", "ignore"), key="rng", bind="query-params",
                help=fields["rng"].description,
            )  # fmt: skip
        with right:
            effort = st.selectbox(
                "Timing", list(ask.EFFORTS), key="effort", bind="query-params",
                help="How many pairs of plain and recomputed updates are sampled: 7 to 15, 7 to 31, "
                "or 15 to 101.",
            )  # fmt: skip
        with left:
            precision = st.selectbox(
                "Precision", ("float32", "bfloat16"), key="precision", bind="query-params",
                help=StudySpec.model_fields["precision"].description,
            )  # fmt: skip
        if workload == "receipts":
            with middle:
                more["norm"] = st.selectbox(
                    "Norm", ("layer", "batch"), key="norm", bind="query-params",
                    help=ReceiptsSettings.model_fields["norm"].description,
                )  # fmt: skip
            with right:
                more["dropout"] = st.number_input(
                    "Dropout", value=0.1, step=0.05, key="dropout", bind="query-params",
                    help=ReceiptsSettings.model_fields["dropout"].description,
                )  # fmt: skip
    return {"variant": variant, "rng": rng}, more, effort, precision


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
