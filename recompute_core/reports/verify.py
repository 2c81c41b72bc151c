"""Is a report to be believed? Checks in a fixed order, each with its outcome in a sentence.

Reports on supplied figures go the same way, and are never taken for others.

First trust: that a signer of the verifier's own file has signed these very bytes. No statement and no
evidence is parsed before its signature or its digest verified, and the first failure ends everything.
Then support: every figure, gate and verdict is computed again from the samples, and so is the page that
people read; all of these checks are always run.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ..spec import explain
from .agreement import check_agreement
from .bundle import EVIDENCE, HTML, PUBLIC_KEY, REPORT, SIGSTORE, TESTS, Bundle, read_bundle, read_zip
from .envelope import Opened, envelope_of_bundle, open_envelope, sigstore_bundle
from .evidence import CELLS, MADE_BY, REVISIONS, STUDY, Found
from .instructions import NAME as VERIFY
from .keys import public_pem
from .predicate import Predicate, decide
from .read_evidence import read_evidence, says_no_more
from .readable import readable
from .refusal import Untrusted, quoted
from .signers import Signers
from .statement import SUPPLIED_TYPE, Decision, digests_of, gates_as_tests, read_statement
from .supplied import SUPPLIED, SuppliedDecision, SuppliedFound, decide_supplied, read_supplied_evidence
from .support import (
    compare_facts,
    compare_gates,
    compare_received,
    compare_specification,
    compare_thresholds,
    compare_verdict,
)
from .verification import (
    SUPPORT,
    SUPPORT_OF_SUPPLIED,
    TRUST,
    Check,
    Verification,
    failed,
    not_reached,
    unreadable,
)

_ABOUT_THE_SIGNER = ("unknown-signer", "bad-signature", "expired-signer", "revoked-signer")
_UNSIGNED = (REPORT, TESTS, SIGSTORE, PUBLIC_KEY)
"""Files that carry signatures, or the key; each is compared as a whole."""
_NEEDED = (EVIDENCE + STUDY, EVIDENCE + CELLS, EVIDENCE + REVISIONS, HTML, VERIFY)
_NEEDED_OF_SUPPLIED = (EVIDENCE + SUPPLIED, HTML, VERIFY)


def verify_path(path: Path, signers: Signers, now: datetime) -> Verification:
    """Verify a folder or a .zip. InputError when there is none, or it cannot be read."""
    return _read_and_verify(lambda: read_bundle(path), signers, now)


def verify_zip(data: bytes, signers: Signers, now: datetime) -> Verification:
    """Verify a .zip as it was uploaded."""
    return _read_and_verify(lambda: read_zip(data), signers, now)


def verify(bundle: Bundle, signers: Signers, now: datetime) -> Verification:
    """Verify a report's files against the keys that are trusted now."""
    found = _Verifying(bundle, signers, now)
    try:
        found.trust()
    except _Stop:
        return found.result()
    found.support()
    return found.result()


def _read_and_verify(read: Callable[[], Bundle], signers: Signers, now: datetime) -> Verification:
    try:
        bundle = read()
    except Untrusted as error:
        return unreadable(error, now)
    return verify(bundle, signers, now)


class _Stop(Exception):
    """Trust is gone; nothing more is looked at."""


class _Verifying:
    """One verification: what is known so far, and the checks made of it."""

    def __init__(self, bundle: Bundle, signers: Signers, now: datetime) -> None:
        self.files, self.evidence = bundle.files, bundle.evidence
        self.signers, self.now = signers, now
        self.checks: list[Check] = []
        self.opened: Opened | None = None
        self.derived: Decision | None = None
        self.support_checks: tuple[str, ...] = SUPPORT
        self.warnings: list[str] = []

    def result(self) -> Verification:
        done = {"gates" if check.id.startswith("gate: ") else check.id for check in self.checks}
        left = tuple(one for one in TRUST + self.support_checks if one not in done)
        checks = (*self.checks, *not_reached(left))
        is_good = not left and all(check.outcome == "pass" for check in checks)
        derived = self.derived if is_good else None
        return Verification(
            checks,
            self.now,
            None if self.opened is None else self.opened.signer,
            derived if isinstance(derived, Predicate) else None,
            tuple(self.warnings),
            derived if isinstance(derived, SuppliedDecision) else None,
        )

    def _pass(self, check: str, sentence: str) -> None:
        self.checks.append(Check(check, "pass", sentence))

    def _fail(self, check: str, error: Untrusted) -> None:
        self.checks.append(failed(check, error))

    # --- trust -------------------------------------------------------------------------------

    def trust(self) -> None:
        self._pass("bundle", f"{len(self.files)} files, {sum(map(len, self.files.values()))} bytes.")
        opened = self.opened = self._opened()
        signer = opened.signer
        self._pass("envelope", "One envelope, DSSE v1, whose payload is an in-toto statement.")
        self._pass("signer", f"Signed by {signer.name}, whose key you trust: {signer.fingerprint}.")
        self.raw, self.said, self.digests = self._or_stop(
            "statement", lambda: _read_statement(opened.payload)
        )
        figures = ""
        if isinstance(self.said, SuppliedDecision):
            self.support_checks, figures = SUPPORT_OF_SUPPLIED, ", on supplied figures"
        if self.said.made_by != MADE_BY:
            self.support_checks = tuple(one for one in self.support_checks if one != "page")
            self.warnings.append(
                f"Made by {quoted(self.said.made_by)}: all figures are computed again, but {HTML} and "
                f"{VERIFY} were not checked: they may say something else than what was verified. Nor "
                "was the wording of what was signed: all sentences here are of this version."
            )
        self._pass("statement", f"A decision on one plan{figures}, over {len(self.digests)} files.")
        self._or_stop("evidence", self._compare_digests)
        self._pass("evidence", "Every file that was signed is here and unchanged, and no other.")
        self._or_stop("tests", self._compare_tests)
        self._pass(
            "tests", "The second statement lists the same gates and files; the signer is the same."
        )
        self._or_stop("copies", self._compare_copies)
        self._pass("copies", f"{SIGSTORE} is the same envelope, and {PUBLIC_KEY} the signer's key.")
        self._or_stop("report.html", self._compare_html)
        self._pass("report.html", f"{HTML} is what was signed.")

    def _or_stop(self, check: str, look: Callable[[], Any]) -> Any:
        try:
            return look()
        except Untrusted as error:
            self._fail(check, error)
            raise _Stop from None

    def _opened(self) -> Opened:
        try:
            return _open(self._file(REPORT), REPORT, self.signers, self.now)
        except Untrusted as error:
            if error.code in _ABOUT_THE_SIGNER:
                self._pass("envelope", "One envelope, DSSE v1, whose payload is an in-toto statement.")
                self._fail("signer", error)
            else:
                self._fail("envelope", error)
            raise _Stop from None

    def _compare_digests(self) -> None:
        signed, here = self.digests, digests_of(self.files)
        is_claimed = isinstance(self.said, SuppliedDecision)
        if is_claimed != (EVIDENCE + SUPPLIED in signed):
            said, found = ("supplied", "measured") if is_claimed else ("measured", "supplied")
            raise Untrusted(
                "kind-differs",
                f"the report says that its figures were {said}; its evidence says they were {found}",
            )
        for name in _NEEDED_OF_SUPPLIED if is_claimed else _NEEDED:
            if name not in signed:
                raise Untrusted("evidence-unsigned", f"{name} is not among what was signed")
        for name in signed:
            if name in _UNSIGNED:
                raise Untrusted("statement-form", f"{name} cannot be among what it signs")
            if name not in here:
                raise Untrusted("evidence-missing", f"{name} was signed and is missing")
        for name in here:
            if name not in signed and name not in _UNSIGNED:
                raise Untrusted("evidence-extra", f"{name} is here and was not signed")
        names = {digest: name for name, digest in signed.items()}
        for name, digest in signed.items():
            if name == HTML or here[name] == digest:
                continue
            if here[name] in names:
                other = names[here[name]]
                raise Untrusted("evidence-swapped", f"{name} holds what was signed as {other}")
            raise Untrusted("evidence-changed", f"{name} was changed after it was signed")

    def _compare_tests(self) -> None:
        opened = _open(self._file(TESTS), TESTS, self.signers, self.now)
        assert self.opened is not None
        if opened.signer != self.opened.signer:
            raise Untrusted(
                "other-signer", f"{TESTS} is signed by {opened.signer.name}, the report by another"
            )
        if opened.payload != gates_as_tests(self.said, self.digests):
            raise Untrusted("tests-differ", f"{TESTS} does not list the gates and files of this report")

    def _compare_copies(self) -> None:
        assert self.opened is not None
        key = self.opened.signer.key
        if self._file(SIGSTORE) != sigstore_bundle(self._file(REPORT), key):
            raise Untrusted("sigstore-differs", f"{SIGSTORE} does not hold the envelope of {REPORT}")
        if self._file(PUBLIC_KEY) != public_pem(key).encode():
            raise Untrusted("public-key-differs", f"{PUBLIC_KEY} is not the key that signed")

    def _compare_html(self) -> None:
        if digests_of({HTML: self._file(HTML)})[HTML] != self.digests[HTML]:
            raise Untrusted("html-changed", f"{HTML} was changed after it was signed")

    def _file(self, name: str) -> bytes:
        if name not in self.files:
            raise Untrusted("file-missing", f"{name} is missing")
        return self.files[name]

    # --- support -----------------------------------------------------------------------------

    def support(self) -> None:
        said = self.said
        if isinstance(said, SuppliedDecision):
            self._support_supplied(said)
        else:
            self._support_study(said)

    def _support_study(self, said: Predicate) -> None:
        try:
            found = read_evidence(self.evidence)
            check_agreement(found)
        except Untrusted as error:
            self._fail("records", error)
            return
        self._pass("records", f"{len(found.cells)} records of {quoted(found.plan)} and of plain.")
        self._look("spec_hash", lambda: compare_specification(said, found))
        self._look("thresholds", lambda: compare_thresholds(said, found))
        try:
            derived = decide(found)
        except Untrusted as error:
            self._fail("gates", error)
            return
        self._compare(derived, found)

    def _support_supplied(self, said: SuppliedDecision) -> None:
        try:
            found = read_supplied_evidence(self.evidence)
        except Untrusted as error:
            self._fail("records", error)
            return
        self._pass("records", f"Figures of {quoted(found.given.plan)} and of plain, as supplied.")
        self._look("thresholds", lambda: compare_received(said, found))
        self._compare(decide_supplied(found), found)

    def _compare(self, derived: Decision, found: Found | SuppliedFound) -> None:
        """What was said with what follows."""
        self.derived = derived
        for check in compare_gates(self.said, derived):
            self.checks.append(check)
        self._look("verdict", lambda: compare_verdict(self.said, derived))
        is_ours = self.said.made_by == MADE_BY
        self._look("facts", lambda: compare_facts(self.raw, derived.document(), with_words=is_ours))
        if is_ours:
            self._look("page", lambda: self._compare_readable(derived, found))

    def _compare_readable(self, derived: Decision, found: Found | SuppliedFound) -> str:
        assert self.opened is not None
        for name, content in readable(derived, found, self.opened.signer.key).items():
            if self.files[name] != content:
                raise Untrusted("page-differs", f"{name} says something else than what was verified")
        return f"{HTML} and {VERIFY} are byte for byte what this version writes of this evidence."

    def _look(self, check: str, look: Callable[[], str]) -> None:
        try:
            self._pass(check, look())
        except Untrusted as error:
            self._fail(check, error)


def _open(envelope: bytes, name: str, signers: Signers, now: datetime) -> Opened:
    """Open an envelope that is written just as `sign` writes it, so that every tool reads the same."""
    opened = open_envelope(envelope, signers, now)
    if opened.warnings:
        raise Untrusted("not-as-written", f"{name}: {opened.warnings[0]}")
    if envelope_of_bundle(sigstore_bundle(envelope, opened.signer.key)) != envelope:
        raise Untrusted("not-as-written", f"{name}: is not written in the one way that we write it")
    if opened.key_id != opened.signer.fingerprint:
        raise Untrusted("not-as-written", f"{name}: does not name the signer's key by its fingerprint")
    return opened


def _read_statement(payload: bytes) -> tuple[dict[str, Any], Decision, dict[str, str]]:
    kind, raw, digests = read_statement(payload)
    said: Decision
    try:
        if kind == SUPPLIED_TYPE:
            said = SuppliedDecision.model_validate(raw)
        else:
            said = Predicate.model_validate(raw)
    except ValidationError as error:
        raise Untrusted("predicate-form", f"the statement: {quoted(explain(error))}") from None
    if not says_no_more(raw, said.document()):
        raise Untrusted("predicate-form", "the statement: holds more than a decision of this version")
    return raw, said, digests
