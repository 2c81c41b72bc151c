"""Verify: can I trust the report I was given?"""

import hashlib
from datetime import UTC, datetime
from pathlib import Path

import streamlit as st

from pages._parts import chrome, decision, verify
from pages._parts.data import get_store
from pages._parts.decision_rechecks import of_report, rechecks
from pages._parts.sections import pair_of_columns
from pages._parts.words import literal
from recompute_core.reports.bundle import REPORT, read_zip
from recompute_core.reports.predicate import Predicate
from recompute_core.reports.recheck_history import statement_digest
from recompute_core.reports.signers import Signers
from recompute_core.reports.supplied import SuppliedDecision
from recompute_core.reports.verification import Verification
from recompute_core.reports.verify import verify_zip
from recompute_core.words import MB_NOTE, interval_note, printable

_MOST_MB = 20
_KEPT = "what came of verifying"


@chrome.plainly
def main() -> None:
    """Drop a report; what it says, only if all checks hold; then the checks."""
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
        st.session_state.pop(_KEPT, None)
        _waiting(signers, now, path)
        return
    data = dropped.getvalue()
    found, statement = _verified(data, signers, now)
    st.html(verify.outcome_line(found))
    unknown = verify.unknown_key(data, found, now)
    if unknown is not None:
        _unknown_signer(unknown, path)
    for warning in found.warnings:
        st.caption(literal(printable(warning)))
    if found.verified and found.predicate is not None:
        _report(found.predicate)
    elif found.verified and found.supplied is not None:
        _supplied(found.supplied)
    _checks(found)
    if found.verified and found.predicate is not None:
        rechecks(of_report(get_store().home, statement))


def _verified(data: bytes, signers: Signers, now: datetime) -> tuple[Verification, str]:
    """What came of verifying, and the digest of the statement if it verified; looked at anew when the
    file is another, or whom this server trusts."""
    asked = (hashlib.sha256(data).digest(), signers, [one.state(now) for one in signers.signers])
    kept = st.session_state.get(_KEPT)
    if kept is None or kept[0] != asked:
        with st.spinner("Checking"):
            found = verify_zip(data, signers, now)
            statement = statement_digest(read_zip(data).files[REPORT]) if found.verified else ""
        kept = st.session_state[_KEPT] = (asked, (found, statement))
    told: tuple[Verification, str] = kept[1]
    return told


def _waiting(signers: Signers, now: datetime, path: Path) -> None:
    st.caption(literal(verify.whom_line(signers, now)))
    if not any(one.state(now) == "trusted" for one in signers.signers):
        st.caption(
            "Trust a signer whose fingerprint you have from them, not from a report, on the machine of "
            f"this server. {verify.WITHOUT_A_TERMINAL}"
        )
        st.code(verify.trust_command(path), language="bash", wrap_lines=True)
    st.subheader("Checks", anchor=False)
    st.html(verify.waiting_table())


def _unknown_signer(fingerprint: str, path: Path) -> None:
    """Whose key it would be, and how to trust it; trust is given at a terminal, not here."""
    st.html(verify.unknown_facts(fingerprint))
    st.caption(
        "Anybody can sign. Ask the signer for their fingerprint over another channel; if it is this, "
        "unpack public_key.pem from the report and run this, on the machine of this server. "
        + verify.WITHOUT_A_TERMINAL
    )
    st.code(verify.trust_command(path), language="bash", wrap_lines=True)


def _checks(found: Verification) -> None:
    st.subheader("Checks", anchor=False)
    if not found.verified:
        st.html(verify.checks_table(found.checks))
        st.caption("Nothing else of a report that is refused is shown.")
        return
    if found.signer is not None:
        st.html(verify.signer_facts(found.signer))
    with st.expander(verify.checks_summary(found.checks)):
        st.html(verify.checks_table(found.checks))


def _report(said: Predicate) -> None:
    st.subheader("What it says", anchor=False)
    st.html(decision.verdict(said))
    if said.declared.follows:
        st.html(decision.reruns(said))
    st.html(decision.decision_facts(said))
    st.html(decision.gate_table(said))
    st.caption(f"Computed here from the samples in the report. {MB_NOTE} {interval_note()}")
    left, right = pair_of_columns("verified")
    with left:
        st.subheader("Rollback", anchor=False)
        st.code(said.rollback.code, language="python", wrap_lines=True)
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
