"""The sections of Reinvest: how far it goes, the same objective, what it buys, rare defects, photos."""

import io
from html import escape
from pathlib import Path

import streamlit as st

from recompute_core.reinvest.gates import used_sentence
from recompute_core.settings import ReceiptsSettings
from recompute_core.spec import StudySpec
from recompute_core.words import MB_NOTE, count, interval_note
from recompute_core.workloads.receipts.cache import dataset_ready, folder_of, read_facts

from . import chrome, markup, reinvest_charts, reinvest_markup, reinvest_words, tables
from .data import get_store
from .pairs import pairs_chart
from .reinvest_data import Shown
from .sections import pair_of_columns
from .words import literal

_QUIET = {"displayModeBar": False}
_GAP = st.column_config.NumberColumn(format="%.2g", alignment="right")


def heading(text: str, one: Shown) -> None:
    """A section's title; where the objective changed it says so beside it."""
    with st.container(horizontal=True, vertical_alignment="center", gap="small"):
        st.subheader(text, anchor=False, width="content")
        if one.result.objective is not None:
            st.html(reinvest_markup.changed_tag(one.result.objective), width="content")


# --- 1 -----------------------------------------------------------------------------------------------


def how_far(one: Shown) -> None:
    """The largest microbatch, and the longest sequence, within plain's peak."""
    heading("1. How far it goes", one)
    reaches = one.result.reaches
    if reaches is None:
        _not_yet(one, "The largest microbatch within plain's peak is looked for first.")
        return
    st.html(f'<div class="rs-finding">{escape(reinvest_words.reach_sentence(reaches.batch))}</div>')
    used = used_sentence(one.result)
    if used is not None:
        st.html(f'<div class="rs-finding">{used}</div>')
    st.html(reinvest_markup.reach_table(reaches.batch))
    if reaches.seq_len is not None:
        st.html(
            f'<div class="rs-finding">{escape(reinvest_words.reach_sentence(reaches.seq_len))}</div>'
        )
        st.html(reinvest_markup.reach_table(reaches.seq_len))
    st.caption(
        "Found by estimate, then measured in a fresh process after parity at that size, state included. "
        f"A bar reaches the line where it reaches plain's peak. {MB_NOTE}"
    )


# --- 2 -----------------------------------------------------------------------------------------------


def same_objective(one: Shown) -> None:
    """The accumulated gradient at both microbatches, the mistake beside it, the worst tensors."""
    heading("2. Same objective", one)
    found = one.result.accumulation
    if found is None:
        _not_yet(one, "The accumulated gradients of both microbatches are compared next.")
        return
    st.html(markup.facts(reinvest_words.objective_facts(found)))
    st.html(
        reinvest_markup.gaps_table(found, one.result.asked.thresholds.accumulation_gap),
    )
    st.html(reinvest_markup.microbatch_table(one.result, found))
    st.caption(
        "Measured here. The loss is the sum over accepted examples divided by the number accepted in "
        f"the whole update; both sides had the same {found.effective_batch:,} examples. "
        f"{reinvest_words.dropout_words(found)}"
    )
    with st.expander(f"Worst tensors of {len(found.gaps):,}"):
        st.dataframe(
            tables.worst_table(found.worst),
            hide_index=True,
            column_config={"Absolute gap": _GAP, "Relative gap": _GAP},
            alt="The gradients that are furthest off between the two microbatches",
        )


# --- 3 -----------------------------------------------------------------------------------------------


def what_it_buys(one: Shown) -> None:
    """Examples per second on both sides, and pair by pair."""
    heading("3. What it buys", one)
    found = one.result.throughput
    if found is None:
        _not_yet(one, "Whole updates of both settings are timed in turn after that.")
        return
    st.html(f'<div class="rs-finding">{reinvest_words.speed_sentence(found)}</div>')
    st.html(reinvest_markup.speed_table(one.result, found))
    colours, limit = chrome.colours(), one.result.asked.thresholds.rate_ratio
    share = found.recomputed_examples / found.plain_examples
    pairs = [(pair.candidate_s, pair.plain_s * share) for pair in found.timing.samples]
    st.markdown("**Examples per second, ratio to plain, pair by pair**")
    st.plotly_chart(
        one.once(("rates", colours), lambda: pairs_chart(pairs, limit, colours)),
        key="reinvest pairs",
        config=_QUIET,
        alt=f"Examples per second as a ratio to plain in each of {len(pairs)} pairs of updates, the "
        "median so far with its interval, and the gate",
    )
    st.caption(
        f"Measured here: {count(found.timing.pairs, 'pair')} of whole accumulated updates in turn, in "
        f"one process. Circles: pairs; line and band: their median so far and its interval; dashed: the "
        f"gate, at least {limit:g}. {interval_note(found.timing.pairs)}"
    )


# --- 4 -----------------------------------------------------------------------------------------------


def rare_defects(one: Shown) -> None:
    """Recall of each class, both settings, and what the rare one lost."""
    heading("4. Rare defects", one)
    found = one.result.training
    if found is None:
        if one.result.not_trained is not None:
            st.html(markup.strip(f"Training is skipped. {one.result.not_trained}", "plain"))
        else:
            _not_yet(one, "Both settings are trained last, seed by seed.")
        return
    said = reinvest_words.gate_sentence(one.result.gates, "rare_recall")
    st.html(f'<div class="rs-finding">{escape(said)}</div>')
    st.html(markup.facts(reinvest_words.rare_facts(found)))
    colours = chrome.colours()
    with st.container(key="stack-reinvest-recall"):
        left, right = st.columns([1, 1.2], gap="medium")
    with left:
        st.markdown("**Recall of each class**")
        st.plotly_chart(
            one.once(("recalls", colours), lambda: reinvest_charts.recall_chart(found, colours)),
            key="reinvest recalls",
            config=_QUIET,
            alt=reinvest_words.describe_recall(found),
        )
    with right:
        st.html(reinvest_markup.recall_table(found))
        st.caption(reinvest_words.disagreement_sentence(found))
    st.html(reinvest_markup.seeds_table(found))
    st.caption(
        "Measured here. A receipt's recall is the share of its photos, over all seeds, that were seen "
        "rightly; intervals are Wilson's, of as many trials as there are receipts, widened where "
        "seeds differ by more than their receipts explain."
    )


def curves(one: Shown) -> None:
    """Loss and accuracy or recall of every training run, as far as they have come."""
    if not one.runs:
        return
    colours, labels = chrome.colours(), reinvest_charts.classes_of(one.runs)
    left, right = pair_of_columns("reinvest-curves")
    with left:
        st.markdown("**Loss of each update**")
        st.caption("Mean over the accepted examples of each update; one line a seed.")
        st.plotly_chart(
            one.once(
                ("losses", colours),
                lambda: reinvest_charts.curves(one.runs, reinvest_charts.losses, "loss", colours),
            ),
            key="reinvest losses",
            config=_QUIET,
            alt=reinvest_words.describe_curves(one.runs, "Loss"),
        )
    with right:
        if not labels:
            st.markdown("**Accuracy on validation**")
            st.caption("Appears with the first look at the validation photos.")
            return
        st.markdown("**Accuracy, or recall of a class, on validation**")
        which = _shown_class(labels)
        what = "accuracy" if which == "accuracy" else f"recall of {which}"
        st.plotly_chart(
            one.once(
                (which, colours),
                lambda: reinvest_charts.curves(
                    one.runs, lambda run: reinvest_charts.shares(run, which), what, colours, True
                ),
            ),
            key="reinvest shares",
            config=_QUIET,
            alt=reinvest_words.describe_curves(one.runs, what.capitalize()),
        )


def _shown_class(labels: list[str]) -> str:
    picked = st.pills(
        "On validation", ["accuracy", *labels], default="accuracy", required=True, wrap=True,
        key="reinvest curve", label_visibility="collapsed",
    )  # fmt: skip
    return picked if picked in labels else "accuracy"


def _not_yet(one: Shown, words: str) -> None:
    st.caption(words if one.is_live else "Not reached.")


# --- the photos --------------------------------------------------------------------------------------


def photos(spec: StudySpec) -> None:
    """The rendered set at a glance, where the study trains on it and it has been made."""
    home = get_store().home
    settings = spec.workload
    if not isinstance(settings, ReceiptsSettings) or settings.images is not None:
        return
    if not dataset_ready(home):
        return
    box = st.expander("The photos, class by class", key="reinvest sheet", on_change="rerun")
    if box.open:
        with box:
            st.image(
                _sheet(home, read_facts(folder_of(home)).digest),
                alt="A contact sheet of the rendered receipts: a row of photos of each class, ok, "
                "blurry, faint, glare, cutoff and torn, then those that intake rejected, with why",
            )
            st.caption(
                "The rendered set, each photo of another receipt. In the last row those that an intake "
                "step rejected: they are drawn like the others and count nowhere."
            )


@st.cache_data(show_spinner="Drawing the contact sheet", max_entries=2)
def _sheet(home: Path, digest: str) -> bytes:
    from recompute_core.workloads.receipts.sheet import contact_sheet

    held = io.BytesIO()
    contact_sheet(home).save(held, "PNG")
    return held.getvalue()


def failure(one: Shown) -> None:
    """Why the last try could not be completed."""
    if one.result.failure is not None and not one.is_live:
        st.error(literal(one.result.failure))
