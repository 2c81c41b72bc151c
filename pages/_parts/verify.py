"""What a verification found, as Verify shows it. Pure, apart from reading the server's signers file.

Of a report that did not verify nothing is shown but why. Every text is escaped.
"""

import os
import shlex
from datetime import datetime
from html import escape
from pathlib import Path

from recompute_core.errors import InputError
from recompute_core.reports.bundle import PUBLIC_KEY, REPORT, read_zip
from recompute_core.reports.envelope import open_envelope
from recompute_core.reports.keys import fingerprint, public_key_of
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.signers import Signer, Signers, load_signers, signers_file
from recompute_core.reports.verification import SUPPORT, TRUST, Check, CheckOutcome, Verification
from recompute_core.words import count, printable

from . import markup
from .decision import outcome_table
from .palette import Mark
from .words import VERDICTS

VARIABLE = "RECOMPUTE_SIGNERS"
"""In the server's environment: the signers file, where it is not signers.json in RECOMPUTE_HOME."""

LOOKS: dict[str, str] = {
    "bundle": "The files are those of a report, and at most 20 MB.",
    "envelope": "The statement is in one signed envelope, DSSE v1.",
    "signer": "A key that this server trusts has signed these very bytes.",
    "statement": "What was signed is a decision on one plan.",
    "evidence": "Every file has the digest that was signed; none is missing, none is extra.",
    "tests": "The second statement lists the same gates and files.",
    "copies": "The Sigstore bundle and the public key are the same once more.",
    "report.html": "The page to read is the one that was signed.",
    "records": "The raw samples are well formed, and of one study.",
    "spec_hash": "The specification is the one that was declared.",
    "thresholds": "The thresholds were declared before the first measurement, and are those used.",
    "gates": "Every gate, computed again from its samples, says what the report says.",
    "verdict": "The verdict follows from the gates.",
    "facts": "Every other figure, digest and sentence follows from the evidence.",
    "page": "The page and the instructions say what was verified, byte for byte.",
}
"""Before anything is dropped: what each check will look at."""

_MARKS: dict[CheckOutcome, tuple[Mark, str]] = {
    "pass": ("pass", "holds"),
    "fail": ("fail", "refused"),
    "not_reached": ("not_run", "not reached"),
}
_MOST_GATES = 12
"""Gates that are listed one by one; of more, only those that fail."""


def trusted_signers() -> tuple[Path, Signers]:
    """The server's own signers file; no signers where there is none. InputError when it is unusable."""
    named = os.environ.get(VARIABLE)
    path = signers_file(Path(named) if named else None)
    return path, load_signers(path, may_be_missing=not named)


def outcome_line(found: Verification) -> str:
    """Verified, or refused and by which check: the line at the top.

    Only a report that says adopt is marked as one that passes: what is verified is that a report says
    what its evidence gives, whatever that is.
    """
    said = found.decision
    if found.verified and found.signer is not None and said is not None:
        kind: Mark = "pass" if said.verdict == "adopt" else "not_run"
        also = "" if said.verdict == "adopt" else ", not adopt"
        words, sentence = (
            "Verified",
            f"Signed by {found.signer.name}; its evidence supports all of it. "
            f"The verdict is {VERDICTS[said.verdict]}{also}.",
        )
    else:
        first = found.failures[0]
        kind, words, sentence = "fail", f"Refused by the check {first.id}", first.sentence
    return (
        f'<div class="rs-verdict rs-edge-{kind}" role="status">{markup.mark(kind, "", quiet=True)}'
        f"<p><b>{escape(printable(words))}.</b> {escape(printable(sentence))}</p></div>"
    )


# --- the list of checks ------------------------------------------------------------------------------


def waiting_table() -> str:
    """The checks before there is anything to check."""
    return _table(
        [(one, ("not_run", "waiting"), LOOKS[one]) for one in TRUST + SUPPORT], "What it looks at"
    )


def checks_table(checks: tuple[Check, ...]) -> str:
    """Every check with its outcome and what was found."""
    return _table(
        [(one.id, _MARKS[one.outcome], _found(one)) for one in _briefly(checks)], "What it found"
    )


def _found(check: Check) -> str:
    """Its sentence, or what it would have looked at."""
    return LOOKS.get(check.id, "") if check.outcome == "not_reached" else check.sentence


def _briefly(checks: tuple[Check, ...]) -> list[Check]:
    """The checks, many gates that pass as one."""
    passing = [one for one in checks if one.id.startswith("gate: ") and one.outcome == "pass"]
    if len(passing) <= _MOST_GATES:
        return list(checks)
    sentence = f"{count(len(passing), 'gate')}, computed again from their samples, say what it says."
    brief: list[Check] = []
    for one in checks:
        if one is passing[0]:
            brief.append(Check("gates", "pass", sentence))
        elif one not in passing:
            brief.append(one)
    return brief


def _table(rows: list[tuple[str, tuple[Mark, str], str]], head: str) -> str:
    return outcome_table(("Check", "Outcome", head), [(*row, "") for row in rows])


def checks_summary(checks: tuple[Check, ...]) -> str:
    """`All 22 checks hold`, where they do."""
    return f"All {count(len(checks), 'check')} hold"


# --- whose it is ---------------------------------------------------------------------------------------


def signer_facts(signer: Signer) -> str:
    """Who signed, in the verifier's words."""
    kinds = {"p256": "ECDSA on P-256", "ed25519": "Ed25519"}
    return markup.facts(
        [
            ("Signer", f"known as {signer.name}"),
            ("Key", kinds[signer.kind]),
            ("Fingerprint", signer.fingerprint),
            ("Trusted since", f"{signer.trusted_at:%-d %b %Y}"),
        ]
    )


def unknown_key(data: bytes, found: Verification, now: datetime) -> str | None:
    """The fingerprint of the key in a report, when it did sign and no trusted key has; else None."""
    if not found.failures or found.failures[0].code != "unknown-signer":
        return None
    try:
        files = read_zip(data).files
        key = public_key_of(files[PUBLIC_KEY].decode("utf-8", errors="replace"), PUBLIC_KEY)
        open_envelope(files[REPORT], Signers().with_trust(key, "unknown", now), now)
    except (InputError, Untrusted, KeyError):
        return None
    return fingerprint(key)


def unknown_facts(fingerprint: str) -> str:
    """A key that signed and that nobody here has said they trust."""
    return markup.facts([("Signer", "unknown"), ("Fingerprint", fingerprint)])


WITHOUT_A_TERMINAL = (
    "It asks whether the fingerprint is theirs; where there is no terminal to ask on, add --yes "
    "FINGERPRINT, the one that they told you."
)


def trust_command(path: Path) -> str:
    """What the operator runs once the fingerprint was compared."""
    where = "" if path == signers_file(None) else f" --signers {shlex.quote(str(path))}"
    return f"python -m recompute_core keys trust public_key.pem --name WHO{where}"


def whom_line(signers: Signers, now: datetime) -> str:
    """Whose reports this server believes, in a line."""
    names = [one.name for one in signers.signers if one.state(now) == "trusted"]
    if not names:
        return "This server trusts no signer yet, so every report is refused."
    some = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    return f"This server trusts {count(len(names), 'signer')}: {some}."
