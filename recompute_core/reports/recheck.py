"""Does a report still hold, here and now? Its bundle is verified, and its parity is run again.

At each shape the reported update is rebuilt from the specification in the evidence, on the libraries,
the device and the code of this machine: plain, plain again, a replay broken on purpose, the plan, and
plain once the plan is off, under the thresholds that were declared. What came of it is one of

`same`           parity holds, and plain's update is bitwise the reported one, whatever else changed
`holds_drifted`  parity holds, and plain's update is another in its last bits, for which a change is
                 named: a library, the device, threads, numeric settings, or a device that does not
                 repeat itself
`lost`           the recomputed update differs from plain's, or the plan cannot be taken off
`cannot_tell`    what runs here is not what was reported, so that its parity says nothing about the
                 report: another source of a class or of the factory, another model or batch; or it
                 cannot be rebuilt; or plain differs from plain; or a broken replay passed; or
                 plain's update moved and nothing that is named can have moved it, so that code changed
                 which no digest covers

A class of an installed library is part of that library: with another version its source may be another,
which is drift. A source that changed without its library's version, and any source of one's own, is
another block, even if the difference is a comment: legality looked at the code that was reported.
A data set that changed and still gives the same batch is named, and says nothing by itself.

Importing this imports no torch. What a recheck leaves behind is one line of its history.
"""

import platform
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ..asking import assign
from ..errors import InputError, StoreError
from ..plans.names import budget_of, regions_of
from ..results import Gap, Legality, Reference
from ..settings import ReceiptsSettings, shape_key
from ..spec import StudySpec, parse_spec
from ..studies.admission import check_memory
from ..studies.artifacts import reference_name
from ..studies.flow import Book, canary_module, module_names
from ..studies.locks import Lock, machine_lock
from ..studies.one_shape import Asked, Ran, Tell, run_shape
from ..studies.store import home_folder, now
from .bundle import REPORT, Bundle, read_bundle
from .evidence import MADE_BY, Found
from .exact_gaps import exact_gaps
from .read_evidence import read_evidence
from .recheck_changes import drift_of, machine_changes, update_changes
from .recheck_history import folder, keep, statement_digest
from .recheck_outcome import judged, parity_here, sentence_of, shape_sentence
from .recheck_record import Change, Code, Drift, Recheck, ShapeRecheck, SignedBy
from .refusal import Untrusted, quoted
from .signers import Signers
from .verification import Verification, unreadable
from .verify import verify

_IMAGES = "workload.images"
MAY_BE_SET = ("threads", "device", _IMAGES)
"""What names this machine, and nothing of what was reported."""
_PATIENCE_S = 3600.0
_PHOTOS = f"no folder that a report names is read; give its photos as --set {_IMAGES}=FOLDER"


@dataclass(frozen=True)
class Believed:
    """A report that verified, and what it holds."""

    bundle: Bundle
    verification: Verification
    found: Found


def verified(path: Path, signers: Signers) -> Believed | Verification:
    """The report at a path, or the verification that refuses it. InputError when there is none."""
    moment = datetime.now(UTC).replace(microsecond=0)
    try:
        bundle = read_bundle(path)
    except Untrusted as error:
        return unreadable(error, moment)
    verification = verify(bundle, signers, moment)
    if not verification.verified:
        return verification
    if verification.supplied is not None:
        raise InputError(f"{path}: its figures were supplied; there is no run of ours to repeat")
    return Believed(bundle, verification, read_evidence(bundle.evidence))


def recheck(
    report: Believed,
    shape: str | None = None,
    settings: tuple[str, ...] = (),
    home: Path | None = None,
    tell: Tell = lambda _: None,
    warn: Tell = lambda _: None,
) -> Recheck:
    """Run a report's parity again, and keep what came of it; `warn` hears why it cannot be kept.

    `shape` is a shape's key; all of them without it. `settings` are `path=value` of MAY_BE_SET. `home`
    is RECOMPUTE_HOME. Raises InputError for a shape that the report does not have and for a setting that
    is none or that this machine cannot give, or when the machine is busy for an hour; StoreError when
    there is no place to work in.
    """
    home = home or home_folder()
    began, checked_at = time.monotonic(), now()
    asked = _spec(report.found, settings)
    shapes = _shapes(asked, shape)
    statement = statement_digest(report.bundle.files[REPORT])
    waiting = "waiting for the machine: something is measured"
    with _held(machine_lock("a recheck of a report"), tell, waiting), _work_folder(home, tell) as work:
        rechecking = _Rechecking(report.found, asked, settings, home, work, tell)
        found = tuple(rechecking.at(key, sizes) for key, sizes in shapes.items())
    verification = report.verification
    assert verification.predicate is not None and verification.signer is not None
    result = Recheck(
        schema="recompute-recheck/1",
        statement=statement,
        study_id=report.found.row.id,
        plan=report.found.plan,
        plan_hash=verification.predicate.plan_hash,
        signer=SignedBy(name=verification.signer.name, fingerprint=verification.signer.fingerprint),
        checked_at=checked_at,
        seconds=time.monotonic() - began,
        made_by=MADE_BY,
        settings=settings,
        environment=rechecking.environment,
        changes=rechecking.changes,
        shapes=found,
        sentence=sentence_of(found),
    )
    try:
        keep(home, result)
    except StoreError as error:
        warn(f"the recheck is not in the history: {error}")
    return result


def _spec(found: Found, settings: tuple[str, ...]) -> StudySpec:
    """The reported specification, with what names this machine."""
    spec = found.row.spec
    if not settings:
        return spec
    raw = spec.model_dump(mode="json")
    for assignment in settings:
        name = assignment.partition("=")[0]
        if name not in MAY_BE_SET:
            raise InputError(
                f"--set {assignment[:80]}: a recheck is of what was reported; only "
                f"{', '.join(MAY_BE_SET)} may be set"
            )
        assign(raw, assignment)
    set_images = any(one.startswith(f"{_IMAGES}=") for one in settings)
    if set_images and not isinstance(spec.workload, ReceiptsSettings):
        raise InputError(f"--set workload.images: {spec.workload.name} has no photos")
    asked = parse_spec(raw, "--set")
    if set_images and isinstance(asked.workload, ReceiptsSettings) and asked.workload.images:
        images = _photos(asked.workload.images)
        workload = asked.workload.model_copy(update={"images": images})
        asked = asked.model_copy(update={"workload": workload})
    return asked


def _photos(given: str) -> str:
    """A folder of photos, looked at before anything runs; its whole path."""
    from ..workloads.receipts.manifest import check_images

    try:
        images = Path(given).expanduser().absolute()
        check_images(images)
    except OSError as error:
        raise InputError(f"--set workload.images: cannot be read: {error.strerror}") from None
    except (InputError, RuntimeError) as error:
        raise InputError(f"--set workload.images: {error}") from None
    return str(images)


def _shapes(spec: StudySpec, only: str | None) -> dict[str, dict[str, int]]:
    shapes = {shape_key(spec.at(sizes)): sizes for sizes in spec.shapes}
    if only is None:
        return shapes
    if only not in shapes:
        raise InputError(f"--shape {only[:80]}: the report has {', '.join(shapes)}")
    return {only: shapes[only]}


@contextmanager
def _held(lock: Lock, tell: Tell, waiting: str) -> Iterator[None]:
    """Hold a lock, and say so while somebody else does."""
    if not lock.acquire():
        tell(waiting)
        deadline = time.monotonic() + _PATIENCE_S
        while not lock.acquire(0.5):
            if time.monotonic() > deadline:
                raise InputError(f"{waiting}; an hour has passed, try again")
    try:
        yield
    finally:
        lock.release()


@contextmanager
def _work_folder(home: Path, tell: Tell) -> Iterator[Path]:
    """A folder that is gone afterwards; those of rechecks that were killed are removed too.

    By a lock of its own that lies beside them: the machine's lock lies in TMPDIR, which may be another
    one for another recheck of this RECOMPUTE_HOME.
    """
    ours = "".join(letter if letter.isalnum() else "-" for letter in platform.node())
    place = folder(home)
    work = place / f".work-{ours}-{secrets.token_hex(4)}"
    try:
        place.mkdir(parents=True, exist_ok=True)
        with _held(Lock(place / f".lock-{ours}"), tell, f"waiting for another recheck in {place}"):
            for left in place.glob(f".work-{ours}-*"):
                shutil.rmtree(left, ignore_errors=True)
            work.mkdir()
            try:
                yield work
            finally:
                shutil.rmtree(work, ignore_errors=True)
    except OSError as error:
        raise StoreError(f"{error.filename or place}: {error.strerror}") from None


class _Rechecking:
    """One recheck on its way, shape by shape."""

    def __init__(
        self,
        found: Found,
        spec: StudySpec,
        settings: tuple[str, ...],
        home: Path,
        work: Path,
        tell: Tell,
    ) -> None:
        self.found, self.spec, self.settings = found, spec, settings
        self.home, self.work, self.tell = home, work, tell
        self.has_photos = any(one.startswith(f"{_IMAGES}=") for one in settings)
        self.book = Book.of(found.cells)
        self.environment: dict[str, Any] = {}
        self.changes: tuple[Change, ...] = ()

    def at(self, key: str, sizes: dict[str, int]) -> ShapeRecheck:
        began = time.monotonic()
        facts: dict[str, Any] = {"shape_key": key, "shape": sizes, "held_in_report": self._held(key)}

        def not_run(code: Code, why: str) -> ShapeRecheck:
            sentence = f"Cannot tell at {key}: {why}."
            return ShapeRecheck(**facts, outcome="cannot_tell", code=code, sentence=sentence)

        recorded = self._recorded(key)
        if isinstance(recorded, str):
            return not_run("nothing-recorded", recorded.removesuffix("."))
        images = getattr(self.spec.workload, "images", None)
        if images is not None and not self.has_photos:
            return not_run("not-rebuilt", f"{_PHOTOS}, which lay in {quoted(images)} there")
        try:
            check_memory(self.spec.model_copy(update={"shapes": (sizes,)}))
        except InputError as error:
            return not_run("not-rebuilt", str(error))
        then, legality = recorded
        ran = self._run(key, sizes, legality)
        changes, drift = self._compared(key, ran, then)
        outcome, code, why = judged(
            then, ran, (*self.changes, *changes), drift, self.spec.thresholds, self.spec.ranks
        )
        return ShapeRecheck(
            **facts,
            outcome=outcome,
            code=code,
            sentence=shape_sentence(key, outcome, why, facts["held_in_report"], ran),
            changes=changes,
            drift=drift,
            noise_floor=None if ran.noise is None else ran.noise.largest_relative_gap,
            canary=ran.canary,
            parity=None if ran.parity is None else parity_here(ran.parity, self.spec.thresholds),
            seconds=time.monotonic() - began,
        )

    def _held(self, key: str) -> bool | None:
        cell = self.book.done(key, self.found.plan, "parity")
        return None if cell is None or cell.payload is None else bool(cell.payload["passed"])

    def _recorded(self, key: str) -> tuple[Reference, Legality] | str:
        """What the report rests on at a shape, or why there is nothing to check again."""
        then, legality = self.book.reference(key), self.book.legality(key)
        if then is None or legality is None:
            return "the report holds no finished update of plain there"
        refusals = legality.refusals(module_names(self.spec, self.found.plan))
        if refusals:
            return (
                "the report refuses the plan there as unsafe to replay, and holds no parity: "
                f"{refusals[0].sentence}"
            )
        return then, legality

    def _run(self, key: str, sizes: dict[str, int], legality: Legality) -> Ran:
        asked = Asked(
            spec=self.spec,
            shape=sizes,
            shape_key=key,
            regions=regions_of(self.spec, self.found.plan),
            canary=canary_module(self.spec, self.found.plan, legality),
            budget=budget_of(self.found.plan),
            home=self.home,
            folder=self.work,
        )
        ran = run_shape(asked, self.tell)
        self._check_settings(ran)
        if ran.environment is not None and not self.environment:
            self.environment = ran.environment
            self.changes = machine_changes(
                self.found.row.environment, ran.environment, self.found.made_by, MADE_BY
            )
        return ran

    def _check_settings(self, ran: Ran) -> None:
        """A device that was asked for and is not there is the user's mistake."""
        if ran.failed is not None and any(one.startswith("device=") for one in self.settings):
            reason = ran.failed[1]
            if reason.startswith("device: "):
                raise InputError(f"--set {reason}")

    def _compared(self, key: str, ran: Ran, then: Reference) -> tuple[tuple[Change, ...], Drift | None]:
        if ran.reference is None:
            return (), None
        versions = (self.found.row.environment.get("torch"), self.environment.get("torch"))
        changes = update_changes(then, ran.reference, *versions)
        drift = drift_of(then, ran.reference, self._exact_gaps(key, then, ran.reference))
        (self.work / reference_name(key)).unlink(missing_ok=True)  # the next shape needs the room
        return changes, drift

    def _exact_gaps(self, key: str, then: Reference, here: Reference) -> tuple[Gap, ...] | None:
        """From the study's own reference, where the study lies on this machine."""
        study = self.found.row.id
        if then.digest == here.digest or not study.replace("-", "").isalnum():  # a name from a report
            return None
        self.tell(f"comparing with the report at {key}")
        recorded = self.home / "studies" / study / reference_name(key)
        return exact_gaps(recorded, then.digest, self.work / reference_name(key), here.digest)
