"""The fields of Set up. Each is bound to the address, which holds what differs from the usual."""

from dataclasses import dataclass
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from recompute_core.plans.anatomy import anatomy_of
from recompute_core.settings import OURS, Anatomy, OwnSettings, ReceiptsSettings
from recompute_core.spec import CheckpointSettings, StudySpec, Thresholds

from . import address, ask, own, setup_job
from .address import Number, OneOf, SomeOf, Texts, Truth
from .words import GATE_MEANINGS

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
_MOST = {"blocks": 1024}
_MOST_OF_A_SIZE = 2**31 - 1
_ANOTHER = "another model"
_VARIANTS, _RANDOM = ("call", "forward"), ("preserve", "ignore")
_MOST_THREADS = 1024
_PRECISIONS, _NORMS = ("float32", "bfloat16"), ("layer", "batch")
BY_HAND = "by_hand"
"""Key of the blocks that are chosen by hand."""


def _whole(most: float) -> Number:
    return Number(1, most, whole=True)


FIELDS: address.Fields = {
    "workload": ("Workload", OneOf([*OURS, _ANOTHER])),
    "model": ("Model", Texts(most=1, longest=400)),
    **{
        f"{workload}_{name}": (
            name.capitalize(),
            Number(1, _MOST.get(name, _MOST_OF_A_SIZE), whole=True),
        )
        for workload, names in _SIZES.items()
        for name in names
    },
    "plans": ("Whole blocks", SomeOf(ask.BLOCK_RECIPES)),
    "finer": ("Finer than blocks", SomeOf(ask.FINER_RECIPES)),
    "curve": ("Selective curve", Truth()),
    **{f"{kind}_lengths": ("Shapes", Texts()) for kind in _LENGTHS},
    **{f"{kind}_batches": ("Batch sizes", Texts()) for kind in _BATCHES},
    "max_peak": ("Peak, at most", Number()),
    "max_update": ("Update, at most", Number()),
    "max_gap": ("Gradient gap", Number()),
    "max_relative": ("Relative gap", Number()),
    "variant": ("Variant", OneOf(_VARIANTS)),
    "rng": ("Random state", OneOf(_RANDOM)),
    "effort": ("Timing", OneOf(list(ask.EFFORTS))),
    "precision": ("Precision", OneOf(_PRECISIONS)),
    "threads": ("Threads", Number(1, _MOST_THREADS, whole=True, may_be_empty=True)),
    "norm": ("Norm", OneOf(_NORMS)),
    "dropout": ("Dropout", Number()),
    **setup_job.FIELDS,
}
"""What the address may hold. The blocks by hand are looked at once the model is known."""


@dataclass(frozen=True)
class Places:
    """Where the fields stand."""

    model: DeltaGenerator
    """Workload and plans."""
    shapes: DeltaGenerator
    limits: DeltaGenerator
    """Thresholds, and what is advanced."""


def choices(places: Places) -> ask.Choices | None:
    """What the fields hold; None while another's model is not known."""
    address.look_at(FIELDS)
    found: OwnSettings | None = None
    anatomy: Anatomy | None = None
    settings: dict[str, Any] = {}
    with places.model:
        workload = _workload()
        if workload != _ANOTHER:
            settings = _sizes(workload)
            anatomy = anatomy_of(OURS[workload](blocks=settings["blocks"]))
        elif found := own.chosen():
            anatomy, workload = found.anatomy, found.name
            settings = {"anatomy": anatomy}
        # All other fields are there without a model too: what they hold stays in the address.
        recipes, by_hand, curve = _plans(anatomy)
    with places.shapes:
        lengths, batches = _shapes(workload, found) if anatomy else ([], [])
    with places.limits:
        thresholds = _thresholds()
        checkpoint, more, effort, precision, threads = _advanced(workload)
        job, budgets = setup_job.job()
    if anatomy is None:
        return None
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
        threads=threads,
        job=job,
        budgets=budgets,
    )


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
                    max_value=_MOST.get(name, _MOST_OF_A_SIZE),
                    value=model.model_fields[name].default,
                    key=f"{workload}_{name}",
                    bind="query-params",
                    help=model.model_fields[name].description,
                )
    return settings


def _plans(anatomy: Anatomy | None) -> tuple[list[str], list[int], bool]:
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
        by_hand = _by_hand(anatomy) if anatomy else []
    with right if anatomy else left:
        curve = st.toggle(
            "Selective curve",
            key="curve",
            bind="query-params",
            help="Recompute the first 0, 1, 2 … all blocks in turn: saved bytes, peak and update "
            "time for each.",
        )
    return [*recipes, *finer], by_hand, curve


def _by_hand(anatomy: Anatomy) -> list[int]:
    """The numbers of the blocks that a plan of one's own recomputes; the block map shows the same."""
    numbers = [str(number) for number in range(anatomy.blocks)]
    address.look_at({BY_HAND: ("Blocks by hand", SomeOf(numbers))})
    chosen = st.multiselect(
        "Blocks by hand",
        numbers,
        key=BY_HAND,
        bind="query-params",
        placeholder="Choose blocks",
        help="One more plan that recomputes exactly these blocks. The block map shows and changes the "
        "same choice.",
    )
    return [int(number) for number in chosen]


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
                "Sequence lengths (tokens)" if "seq_len" in known else "Photo shapes (pixels)",
                _LENGTHS[kind],
                default=[str(own_sizes.seq_len)] if own_sizes else _FIRST_LENGTHS[kind],
                accept_new_options=True,
                key=f"{kind}_lengths",
                bind="query-params",
                placeholder="Choose, or type your own",
                help="Type a value of your own and press Enter."
                if "seq_len" in known
                else "Height x width. Type a value of your own and press Enter.",
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
        st.caption(f"{100 * peak_ratio:.0f} % of plain's")
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


def _advanced(workload: str) -> tuple[dict[str, Any], dict[str, Any], str, str, int | None]:
    more: dict[str, Any] = {}
    fields = CheckpointSettings.model_fields
    with st.expander("Advanced"):
        left, middle, right = st.columns(3)
        with left:
            variant = st.selectbox(
                "Variant", _VARIANTS, key="variant", bind="query-params",
                help=fields["variant"].description,
            )  # fmt: skip
        with middle:
            rng = st.selectbox(
                "Random state", _RANDOM, key="rng", bind="query-params",
                help=fields["rng"].description,
            )  # fmt: skip
        with right:
            effort = st.selectbox(
                "Timing", list(ask.EFFORTS), key="effort", bind="query-params",
                help=f"Pairs of plain and recomputed updates, of each candidate: {_efforts()}. The "
                "words under Shapes say what that comes to here.",
            )  # fmt: skip
        with left:
            precision = st.selectbox(
                "Precision", _PRECISIONS, key="precision", bind="query-params",
                help=StudySpec.model_fields["precision"].description,
            )  # fmt: skip
        with middle:
            threads = st.number_input(
                "Threads", min_value=1, max_value=_MOST_THREADS, value=None, step=1, key="threads",
                bind="query-params", placeholder="torch's choice",
                help="CPU threads; empty for torch's own choice. The quick study and the Demo's set 1, "
                "so that the browser has the other cores. Seconds measured with other threads cannot be "
                "compared.",
            )  # fmt: skip
        if workload == "receipts":
            with middle:
                more["norm"] = st.selectbox(
                    "Norm", _NORMS, key="norm", bind="query-params",
                    help=ReceiptsSettings.model_fields["norm"].description,
                )  # fmt: skip
            with right:
                more["dropout"] = st.number_input(
                    "Dropout", value=0.1, step=0.05, key="dropout", bind="query-params",
                    help=ReceiptsSettings.model_fields["dropout"].description,
                )  # fmt: skip
    return {"variant": variant, "rng": rng}, more, effort, precision, threads


def _efforts() -> str:
    """`quick: 9 to 15 in 3 s, normal: …`: what ends the sampling of each."""
    return ", ".join(
        f"{name} {one['min_pairs']:g} to {one['max_pairs']:g} in {one['budget_s']:g} s"
        for name, one in ask.EFFORTS.items()
    )
