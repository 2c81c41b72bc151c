"""A study's JSON read back: the same study, or one line that says what is wrong with it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recompute_core.comparing import imported
from recompute_core.comparing.compare import compare
from recompute_core.comparing.imported import read_document, read_file
from recompute_core.errors import InputError
from tests.core.records import canary, failed, measured, memory, proven, refused

from .results import result

STUDY = result(
    [
        measured(),
        measured(seq_len=256, peaks=(4_000_000, 3_900_000)),
        refused("parity", "attention", canary=canary(), parity=failed(), reasons=("parity fails",)),
        proven("attention", 256, memory=None, failure="time could not be completed: killed"),
    ]
)


def text(change: Callable[[dict[str, Any]], object] = lambda raw: None) -> bytes:
    raw = STUDY.document()
    change(raw)
    return json.dumps(raw, indent=1, allow_nan=False).encode()


def test_what_was_published_is_read_back_whole() -> None:
    assert read_document(text(), "m.json") == STUDY
    found = compare(STUDY, read_document(text(), "m.json"), (False, True))
    assert found.differences == ()
    assert found.b.kind == "supplied"


def test_gates_and_verdicts_are_derived_anew() -> None:
    def forge(raw: dict[str, Any]) -> None:
        raw["sentence"] = "Adopt everything."
        raw["verdict"] = "keep_original"
        for row in raw["candidates"]:
            row["verdict"] = "adopt"
            for gate in row["gates"]:
                gate["outcome"] = "pass"
            if row["timing"]:
                row["timing"]["ratio_median"] = 0.1

    assert read_document(text(forge), "m.json") == STUDY


def test_a_study_without_a_verdict_gets_none() -> None:
    found = read_document(text(lambda raw: raw.update(verdict=None, status="cancelled")), "m.json")
    assert (found.verdict, found.sentence) == (None, "Not decided yet.")


def test_a_missed_canary_stays_undecided() -> None:
    missed = result(
        [measured(), refused("canary", "attention", canary=canary(False), reasons=("it was missed",))]
    )
    raw = json.dumps(missed.document()).encode()
    assert read_document(raw, "m.json").verdict == "undecided"


def test_foreign_text_is_one_printable_line() -> None:
    def write(raw: dict[str, Any]) -> None:
        raw["study_id"] = "x\n\u202e" * 60
        raw["environment"] = {"device_name": "a\x1b[31m" * 100, "deep": {"a": [1]}, "threads": 2}

    found = read_document(text(write), "m.json")
    assert len(found.study_id) == 60
    assert found.study_id.isprintable()
    assert found.environment["device_name"].isprintable()
    assert len(found.environment["device_name"]) == 300
    assert found.environment["threads"] == 2
    assert isinstance(found.environment["deep"], str)


def _many_pairs(raw: dict[str, Any]) -> None:
    timing = raw["candidates"][0]["timing"]
    timing["samples"] = timing["samples"] * 400


def _no_bytes(raw: dict[str, Any]) -> None:
    raw["candidates"][0]["memory"]["plain"] |= {"state_bytes": 0, "peak_samples": [0]}


def _twice(raw: dict[str, Any]) -> None:
    raw["candidates"].append(raw["candidates"][0])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda raw: raw.update(schema="recompute-plan/1"), "its schema is recompute-plan/1"),
        (lambda raw: raw.pop("schema"), "expected the schema recompute-study/1, it has none"),
        (lambda raw: raw.pop("spec"), "spec: field required"),
        (lambda raw: raw.pop("thresholds"), "thresholds: field required"),
        (lambda raw: raw.update(candidates=None), "the candidates are not those of its specification"),
        (lambda raw: raw["candidates"].pop(), "the candidates are not those of its specification"),
        (_twice, "a candidate stands twice"),
        (lambda raw: raw["thresholds"].update(peak_ratio=0.5), "the thresholds are not those"),
        (lambda raw: raw["thresholds"].pop("declared_at"), "declared_at"),
        (lambda raw: raw["thresholds"].update(declared_at="yesterday"), "no time in UTC"),
        (lambda raw: raw.update(status="<b>fine</b>"), "status: no such status"),
        (lambda raw: raw.update(environment=dict.fromkeys(map(str, range(101)), 1)), "more than 100"),
        (lambda raw: raw["spec"].update(workload={"name": "os.system"}), "unknown workload"),
        (lambda raw: raw["references"].update(other=raw["references"]["T=128 B=4"]), "references"),
        (lambda raw: raw["candidates"][0].update(state="made up"), "candidate"),
        (lambda raw: raw["candidates"][0]["timing"].update(samples=[]), "samples"),
        (_many_pairs, "every-block at T=128 B=4: more than 1000 pairs"),
        (_no_bytes, "every-block at T=128 B=4: a peak of 0 bytes"),
    ],
)  # fmt: skip
def test_what_is_no_study_is_refused_in_one_line(change: Any, says: str) -> None:
    with pytest.raises(InputError) as refusal:
        read_document(text(change), "m.json")
    line = str(refusal.value)
    assert line.startswith("m.json: ")
    assert says in line
    assert line.isprintable()
    assert len(line) < 400


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"[1, 2", "not JSON"),
        (b"[]", "expected the schema"),
        (b'{"schema": 3}', "expected the schema"),
        (b'{"schema": "a", "schema": "b"}', "stands twice"),
        (b'{"schema": NaN}', "no JSON"),
        (b"[" * 100 + b"]" * 100, "inside each other"),
    ],
)
def test_broken_files_are_refused_in_one_line(data: bytes, says: str) -> None:
    with pytest.raises(InputError, match=says):
        read_document(data, "m.json")


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imported, "MOST_BYTES", 100)
    file = tmp_path / "m.json"
    file.write_bytes(text())
    for read in (lambda: read_file(file), lambda: read_document(text(), "m.json")):
        with pytest.raises(InputError, match=r"more than 100 bytes|at most 100 are read"):
            read()


def test_an_unused_record_of_memory_is_no_reason(tmp_path: Path) -> None:
    """A device without a peak counter has no peak samples."""
    blind = measured()
    none = memory(state=5).model_copy(update={"peak_samples": ()})
    pair = blind.memory.model_copy(update={"plain": none, "candidate": none})
    study = result([blind.model_copy(update={"memory": pair})])
    file = tmp_path / "m.json"
    file.write_text(json.dumps(study.document()))
    assert {c.figure for c in compare(study, read_file(file)).pairings[0].changes} == {
        "update_ratio", "update_s", "plain_update_s", "saved_bytes",
    }  # fmt: skip
