"""A report on a study that repeats another says so, and cannot be made to say less."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recompute_core.__main__ import cli
from recompute_core.errors import InputError
from recompute_core.reports.bundle import Bundle
from recompute_core.reports.evidence import STUDY
from recompute_core.reports.release import release
from recompute_core.rerun import repeated
from recompute_core.spec import StudySpec, Thresholds
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from recompute_core.terminal import rerun_lines
from tests.pages import studies
from tests.reports.decisions import checked, edited, evidence_from, forged, honest, payload_of
from tests.reports.signing import ANN

EARLIER = "20261130-141500-49bd"
SENTENCE = f"Re-run of {EARLIER}, whose update gate was 1.3 (here 1.35), after its result was seen."


def asked() -> StudySpec:
    before = studies.spec_of(thresholds={"update_ratio": 1.3})
    return repeated(before, EARLIER, Thresholds())


def evidence() -> dict[str, bytes]:
    return evidence_from(lambda store: studies.filled(store, asked()))


def test_verifying_says_which_study_was_repeated_and_how_it_was_declared() -> None:
    found = checked(release(evidence(), ANN).bundle)
    assert found.verified, found.sentence
    (thresholds,) = [one for one in found.checks if one.id == "thresholds"]
    assert thresholds.sentence.endswith(SENTENCE)
    assert found.predicate is not None
    assert found.predicate.declared.follows == asked().follows


def test_a_study_that_repeats_none_is_reported_as_ever() -> None:
    said = payload_of(honest().files["report.intoto.jsonl"])["predicate"]
    assert "follows" not in said["declared"]
    assert checked(honest()).verified


def _silent_statement() -> Bundle:
    def leave_out(statement: dict[str, Any]) -> dict[str, Any]:
        statement["predicate"]["declared"].pop("follows")
        return statement

    found = evidence()
    said = payload_of(release(found, ANN).bundle.files["report.intoto.jsonl"])["predicate"]
    return forged(said, found, change=leave_out)


def _silent_evidence() -> Bundle:
    def leave_out(study: dict[str, Any]) -> None:
        study["spec"].pop("follows")

    found = evidence()
    said = payload_of(release(found, ANN).bundle.files["report.intoto.jsonl"])["predicate"]
    said["declared"].pop("follows")
    return forged(said, edited(STUDY, leave_out, found))


@pytest.mark.parametrize(
    ("forge", "code"), [(_silent_statement, "facts-differ"), (_silent_evidence, "spec-hash")]
)
def test_a_report_that_leaves_the_earlier_study_out_is_refused(
    forge: Callable[[], Bundle], code: str
) -> None:
    found = checked(forge())
    assert not found.verified
    assert code in {one.code for one in found.failures}


# --- on the command line -----------------------------------------------------------------------------


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path / "home"))
    opened = Store()
    yield opened
    opened.close()


def test_the_command_says_why_and_measures_longer(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = studies.spec_of(plans=["every-block"])
    study = studies.filled(store, spec, ratios=studies.WIDE)
    assert store.study(study).spec_hash == store.study(study).spec.digest()
    why, command = rerun_lines(assemble(store.study(study), store.cells(study)))
    assert why.startswith("The interval of the update time of every-block at T=128 B=4, 1.190 to 1.550,")
    assert command == f"To measure it longer: python -m recompute_core longer {study}"
    driven: list[str] = []
    monkeypatch.setattr(
        "recompute_core.__main__._drive", lambda store, new, lock, file: driven.append(new)
    )
    said = CliRunner().invoke(cli, ["longer", study], standalone_mode=False)
    assert said.exception is None, said.exception
    assert "A new study under the same thresholds, 15 to 301 pairs" in said.output
    (new,) = driven
    assert [one.study for one in store.study(new).spec.follows] == [study]
    assert store.study(new).spec_hash == store.study(new).spec.digest()
    again = rerun_lines(assemble(store.study(new), store.cells(new)))
    assert again == [f"Re-run of {study}, under the same thresholds, after its result was seen."]


def test_a_decided_study_is_not_measured_longer(store: Store) -> None:
    study = studies.filled(store)
    said = CliRunner().invoke(cli, ["longer", study], standalone_mode=False)
    assert isinstance(said.exception, InputError)
    assert "it is not its update time that leaves it undecided" in str(said.exception)
