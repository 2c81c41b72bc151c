"""Verify: can I trust the report I was given?"""

from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from pages._parts import chrome, decision, verify
from pages._parts.data import get_store
from pages._parts.decision_rechecks import of_report, rechecks
from pages._parts.sections import pair_of_columns
from pages._parts.words import INTERVAL_NOTE, literal
from recompute_core.reports.predicate import Predicate
from recompute_core.reports.signers import Signers
from recompute_core.reports.supplied import SuppliedDecision
from recompute_core.reports.verify import Verification, verify_zip
from recompute_core.words import MB_NOTE, printable

_MOST_MB = 20


@chrome.plainly
def main() -> None:
    """Drop a report; its checks; and only if all of them pass, what it says."""
    chrome.title("Verify", "Can I trust the report I was given?")
    now = datetime.now(UTC).replace(microsecond=0)
    path, signers = verify.trusted_signers()
    dropped = st.file_uploader(
        f"A signed report, one .zip of at most {_MOST_MB} MB",
        type="zip",
        max_upload_size=_MOST_MB,
        key="report to verify",
        help="It stays in this server's memory until you remove it or leave; it is written nowhere.",
    )
    if dropped is None:
        _waiting(signers, now, path)
        return
    data = dropped.getvalue()
    with st.spinner("Checking"):
        found = verify_zip(data, signers, now)
    st.html(verify.outcome_line(found))
    if found.verified and found.signer is not None:
        st.html(verify.signer_facts(found.signer))
    unknown = verify.unknown_key(data, found, now)
    if unknown is not None:
        _unknown_signer(unknown, path)
    for warning in found.warnings:
        st.caption(literal(printable(warning)))
    _checks(found)
    if found.verified and found.predicate is not None:
        _report(found.predicate)
        rechecks(of_report(get_store().home, data))
    elif found.verified and found.supplied is not None:
        _supplied(found.supplied)


def _waiting(signers: Signers, now: datetime, path: Path) -> None:
    st.caption(literal(verify.whom_line(signers, now)))
    if not any(one.state(now) == "trusted" for one in signers.signers):
        st.caption("Trust a signer whose fingerprint you have from them, not from a report:")
        st.code(verify.trust_command(path), language="bash", wrap_lines=True)
    st.subheader("Checks", anchor=False)
    st.html(verify.waiting_table())


def _unknown_signer(fingerprint: str, path: Path) -> None:
    """Whose key it would be, and how to trust it; trust is given at a terminal, not here."""
    st.html(verify.unknown_facts(fingerprint))
    st.caption(
        "Anybody can sign. Ask the signer for their fingerprint over another channel; if it is this, "
        "unpack public_key.pem from the report and run, on the machine of this server:"
    )
    st.code(verify.trust_command(path), language="bash", wrap_lines=True)


def _checks(found: Verification) -> None:
    st.subheader("Checks", anchor=False)
    st.html(verify.checks_table(found.checks))
    if not found.verified:
        st.caption("Nothing else of a report that is refused is shown.")


def _report(said: Predicate) -> None:
    st.subheader("What it says", anchor=False)
    st.html(decision.verdict(said))
    st.html(decision.decision_facts(said))
    st.html(decision.gate_table(said))
    st.caption(f"Computed here from the samples in the report. {MB_NOTE} {INTERVAL_NOTE}")
    left, right = pair_of_columns("verified")
    with left:
        st.subheader("Rollback", anchor=False)
        st.code(said.rollback.code, language="python")
        st.html(decision.rollback_proof(said.rollback.proof))
    with right:
        st.subheader("What this report does not claim", anchor=False)
        st.html(decision.not_claimed(said))


def _supplied(said: SuppliedDecision) -> None:
    st.subheader("What it says", anchor=False)
    st.html(decision.verdict(said))
    st.html(decision.supplied_facts(said))
    st.html(decision.gate_table(said))
    st.caption(f"Computed here from the figures that were supplied. {MB_NOTE}")
    st.subheader("What this report does not claim", anchor=False)
    st.html(decision.not_claimed(said))


main()
