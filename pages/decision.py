"""Decision: what do we release, and how do we take it back?"""

import streamlit as st

from pages._parts import chrome, decision, markup
from pages._parts.data import Snapshot, get_store
from pages._parts.decision_rechecks import of_plan, rechecks
from pages._parts.decision_sign import sign_panel
from pages._parts.exports import export_tabs
from pages._parts.measure_longer import lead_on
from pages._parts.sections import pair_of_columns
from pages._parts.words import UNFINISHED_SENTENCES, literal
from recompute_core.errors import InputError
from recompute_core.reports.evidence import gather
from recompute_core.reports.predicate import Predicate, derive
from recompute_core.reports.refusal import Untrusted
from recompute_core.words import MB_NOTE, fewest_pairs, interval_note

_KEPT = "candidate of"


@chrome.plainly
def main() -> None:
    """The candidate, its verdict and gates, the way back, and what can be taken away."""
    found = chrome.current()
    if found is None:
        _title(None)
        chrome.nothing_yet()
        return
    head = st.container()
    is_finished = found.row.status in ("done", "incomplete") and found.result.verdict is not None
    plan = _chosen_plan(found) if is_finished else None
    with head:
        _title(found.row.id)  # after the choice, so that the link to copy has it
    if plan is None:
        _not_yet(found)
        return
    try:
        said = found.once(("decision", plan), lambda: _decision(found.row.id, plan))
    except InputError as error:
        st.html(markup.strip(f"Nothing can be released: {str(error).rstrip('.')}.", "plain"))
        return
    _decided(found, said)
    sign_panel(said)
    rechecks(of_plan(get_store().home, found.row.id, plan))
    export_tabs(found, plan)
    if said.verdict == "adopt":
        asked = {"study": found.row.id, "plan": plan}
        st.page_link("reinvest.py", label="See what the saved memory buys", query_params=asked)


def _title(study: str | None) -> None:
    chrome.title("Decision", "What do we release, and how do we take it back?", study)


def _decision(study: str, plan: str) -> Predicate:
    """What a report on this plan says. Raises InputError when there is nothing to say."""
    try:
        return derive(gather(get_store(), study, plan))
    except Untrusted as error:
        raise InputError(str(error)) from None


def _not_yet(found: Snapshot) -> None:
    words = UNFINISHED_SENTENCES[found.row.status]
    st.html(markup.strip(f"{words} There is nothing to release yet.", "plain"))
    chrome.live_link(found.row)


def _chosen_plan(found: Snapshot) -> str:
    """The plan to decide on, kept in the address."""
    study, result = found.row.id, found.result
    plans, labels = decision.candidates(result), decision.candidate_labels(result)
    kept, key = st.session_state.setdefault(_KEPT, {}), f"candidate of {study}"
    if st.session_state.get(key) not in plans:
        asked = st.query_params.get("plan") or kept.get(study)
        if asked is not None and asked not in plans:
            st.warning(literal(f"This study has no plan {asked[:60]!r}; shown is {plans[0]}."))
        st.session_state[key] = asked if asked in plans else plans[0]
    picked: str = st.selectbox("Candidate", plans, format_func=labels.__getitem__, key=key, width=520)
    kept[study] = picked
    if st.query_params.get("plan") != picked:
        st.query_params["plan"] = picked
    return picked


def _decided(found: Snapshot, said: Predicate) -> None:
    asked = st.session_state.get("what-if", {}).get(found.row.id)
    what_if = decision.what_if_gates(found.result, said.plan, asked)
    st.html(decision.verdict(said))
    if said.declared.follows:
        st.html(decision.reruns(said))
    if said.verdict == "undecided":
        lead_on(found, [one for one in found.result.judged if one.candidate.plan == said.plan])
    st.html(decision.decision_facts(said, found.row.spec.compile))
    st.subheader("Gates", anchor=False)
    if what_if:
        st.html(
            markup.strip(
                "What-if: thresholds on Trade-off differ from the declared ones. A report rests on the "
                "declared ones; Trade-off declares others and runs again.",
                "whatif",
            )
        )
    st.html(decision.gate_table(said, what_if))
    of_plan = (one.candidate for one in found.result.judged if one.candidate.plan == said.plan)
    note = interval_note(fewest_pairs(one.timing for one in of_plan))
    st.caption(f"Figures measured here, judged by the declared thresholds. {MB_NOTE} {note}")
    left, right = pair_of_columns("decision")
    with left:
        st.subheader("Rollback", anchor=False)
        st.code(said.rollback.code, language="python", wrap_lines=True)
        st.html(decision.rollback_proof(said.rollback.proof))
        st.caption(literal(said.rollback.words))
    with right:
        st.subheader("What this report does not claim", anchor=False)
        st.html(decision.not_claimed(said))


main()
