"""Measurements from elsewhere: JSON and CSV say the same, and whatever is no measurement is one line."""

import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recompute_core.reports.measurements import MOST_BYTES, read_measurements
from recompute_core.reports.refusal import Untrusted
from tests.reports.figures import CSV, RATIOS, as_bytes, measurements
from tests.reports.signing import unhurried


def test_json_and_csv_say_the_same() -> None:
    raw = measurements()
    raw["gradients"]["not_comparable"] = []
    one = read_measurements(as_bytes(raw), "m.json")
    assert one == read_measurements(CSV.encode(), "m.csv")
    assert one.shape_key == "seq_len=2048 batch=8"
    assert one.peak_allocated_bytes is not None
    assert one.peak_allocated_bytes.candidate == (40_000_000_000,)
    assert one.warnings == ()


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("m.json", as_bytes(measurements())),
        ("M.CSV", CSV.encode()),
        ("m.csv", CSV.replace("\n", "\r\n").encode()),
    ],
)
def test_a_byte_order_mark_and_line_ends_of_windows_change_nothing(name: str, data: bytes) -> None:
    assert read_measurements(b"\xef\xbb\xbf" + data, name) == read_measurements(data, name)


def test_times_in_separate_rows_of_a_csv_are_no_pairs() -> None:
    text = "plain_update_s,candidate_update_s,workload,plan,shape\n"
    text += "1,,w,p,batch=1\n1,,,,\n1,,,,\n" + ",2,,,\n" * 4
    found = read_measurements(text.encode(), "m.csv")
    assert found.update_s is not None
    assert (found.update_s.plain, found.update_s.candidate) == ((1, 1, 1), (2, 2, 2, 2))
    assert found.update_s.timing is None
    assert "were not taken in pairs" in found.warnings[0]


def test_few_pairs_are_said_to_be_few() -> None:
    few = measurements(update_s={"pairs": [[1, 1.2]] * 3})
    assert read_measurements(as_bytes(few), "m.json").warnings == (
        "Only 3 pairs of updates: their interval covers less than 95 %.",
    )


PEAKS = {"plain": [2], "candidate": [1]}


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"schema": "recompute-measurements/2"}, "schema"),
        ({"workload": None}, "workload: field required"),
        ({"plan": ""}, "plan"),
        ({"shape": {}}, "shape"),
        ({"shape": {"seq len": 1}}, "shape.seq len"),
        ({"shape": {"batch": 0}}, "shape.batch"),
        ({"shape": {"batch": "8"}}, "shape.batch"),
        ({"colour": "red"}, "colour: no such field"),
        (
            {"peak_allocated_bytes": PEAKS | {"plain": []}},
            "allocated_bytes.plain: expected 1 to 1000",
        ),
        ({"peak_allocated_bytes": PEAKS | {"plain": [-1]}}, "peak_allocated_bytes.plain[0]"),
        ({"peak_allocated_bytes": PEAKS | {"plain": [1.5]}}, "peak_allocated_bytes.plain[0]"),
        ({"peak_allocated_bytes": PEAKS | {"plain": [True]}}, "peak_allocated_bytes.plain[0]"),
        ({"peak_allocated_bytes": PEAKS | {"plain": [1] * 1001}}, "got 1001"),
        ({"peak_allocated_bytes": {"plain": [1]}}, "peak_allocated_bytes.candidate: field required"),
        ({"update_s": {"pairs": [[1, 1]] * 2}}, "update_s.pairs: expected 3 to 1000 samples, got 2"),
        ({"update_s": {"pairs": [[1, 1]] * 2 + [[1, 0]]}}, "update_s.pairs[2][1]"),
        ({"update_s": {"pairs": [[1, 1]] * 2 + [[1, "1"]]}}, "update_s.pairs[2][1]"),
        ({"update_s": {"pairs": [[1, 1]] * 2 + [[1]]}}, "update_s.pairs[2]"),
        ({"update_s": {"plain": [1, 1, 1]}}, "update_s: expected either pairs, or both"),
        ({"update_s": {"pairs": [[1, 1]] * 3, "plain": [1] * 3}}, "update_s: expected either pairs"),
        ({"update_s": {}}, "update_s: expected either pairs"),
        ({"gradients": {}}, "gradients: expected largest_gradient_gap"),
        ({"gradients": {"largest_gradient_gap": -1e-9}}, "gradients.largest_gradient_gap"),
        ({"gradients": {"largest_gap": 0}}, "gradients.largest_gap: no such field"),
        ({"provenance": {"sha256": "0"}}, "sha256 names digests here"),
        ({"shape": {"sha256": 1}}, "sha256 names digests here"),
        ({"provenance": {"machine": 8}}, "provenance.machine"),
        ({"thresholds": {"peak_ratio": 2}}, "thresholds.peak_ratio"),
        (
            {"peak_allocated_bytes": None, "update_s": None, "gradients": None},
            "expected one at least of peak_allocated_bytes",
        ),
    ],
)
def test_what_is_no_measurement_is_named_by_its_place(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(Untrusted) as refused:
        read_measurements(as_bytes(measurements(**changes)), "m.json")
    assert str(refused.value).startswith("m.json: ")
    assert place in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "empty"),
        (b"\xef\xbb\xbf \n", "empty"),
        (b"[1]", "measurements-form"),
        (b"\xff\xfe{\x00}\x00", "not-utf8"),
        (as_bytes(measurements()).replace(b"3e-07", b"NaN"), "not-a-number"),
        (as_bytes(measurements()).replace(b"3e-07", b"1e999"), "not-a-number"),
        (as_bytes(measurements()).replace(b"3e-07", b"9" * 5000), "number-too-long"),
        (as_bytes(measurements()).replace(b'"plan"', b'"plan": "p", "plan"'), "duplicate-key"),
        (b"[" * 100_000, "too-deep"),
        (b" " * MOST_BYTES + b"{}", "too-large"),
    ],
)
def test_what_is_no_file_of_measurements(data: bytes, code: str) -> None:
    with pytest.raises(Untrusted) as refused:
        read_measurements(data, "m.json")
    assert refused.value.code == code


HEAD = "plain_update_s,candidate_update_s,workload,plan,shape\n"
FIRST = "1,1.2,w,p,batch=1\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (HEAD, "m.csv: workload: field required"),
        (HEAD.replace(",", ";") + FIRST, "line 1: columns are separated by semicolons; write commas"),
        (HEAD.replace(",", "\t") + FIRST, "line 1: columns are separated by tabs"),
        ("plain_update_s,plain_update_s\n1,1\n", "line 1: the column 'plain_update_s' stands twice"),
        ("provenance.a\tplain_update_s\n", "line 1: columns are separated by tabs"),
        ("provenance.\n1\n", "line 1: no such column 'provenance.'"),
        (",".join(f"provenance.{n}" for n in range(50_000)), "line 1: 50000 columns; at most 100"),
        ("speed\n1\n", "line 1: no such column 'speed'; known: plain_update_s"),
        (
            HEAD + FIRST + '"1,5",1,,,\n',
            "line 3, plain_update_s: expected a number with a decimal point",
        ),
        (HEAD + FIRST + "nan,1,,,\n", "line 3, plain_update_s: expected a number"),
        (HEAD + FIRST + "1_0,1,,,\n", "line 3, plain_update_s: expected a number"),
        (HEAD + FIRST + "1,-1,,,\n", "line 3, candidate_update_s: input should be greater"),
        (HEAD + FIRST + "1,1\n", "line 3: 2 fields; the header has 5 columns"),
        (HEAD + FIRST + "1,,,,\n", "line 3: one update time without the other"),
        (HEAD + FIRST + "1,1,other,,\n", "m.csv: workload: 'w' in line 2, 'other' in line 3"),
        (HEAD + FIRST.replace("batch=1", "8"), "m.csv: shape: expected sizes such as seq_len=2048"),
        (HEAD + FIRST.replace("batch=1", "a=1 a=2"), "m.csv: shape: expected sizes"),
        (HEAD + FIRST * 2, "m.csv: update_s.pairs: expected 3 to 1000 samples, got 2"),
        (HEAD + '1,"1.2,w,p\n', "not CSV"),
        (HEAD + FIRST * 1001, "got 1001"),
    ],
)
def test_what_is_no_table_of_measurements_is_named_by_line_and_column(text: str, says: str) -> None:
    with pytest.raises(Untrusted) as refused:
        read_measurements(text.encode(), "m.csv")
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)


# --- nothing leads to a traceback --------------------------------------------------------------

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
fields = st.sampled_from(sorted(measurements()))


@unhurried
@given(st.dictionaries(fields, anything, max_size=4), st.sampled_from(["m.json", "m.csv"]))
def test_any_json_is_read_or_refused(changes: dict[str, Any], name: str) -> None:
    _read_or_refused(json.dumps(measurements() | changes).encode(), name)


cells = st.sampled_from(
    ["", "1", "1.5", "-1", "1e400", "nan", "a=1", "x", '"', "\0", "\u202e", "1;2", "9" * 50]
)
columns = st.sampled_from([*CSV.partition("\n")[0].split(","), "not_comparable", "provenance.", "", "é"])
rows = st.lists(st.lists(cells, min_size=1, max_size=6), max_size=8)


@unhurried
@given(st.lists(columns, max_size=6), rows, st.sampled_from([",", ";", "\t"]))
@example(["workload"], [["\0"]], ",")
def test_any_table_is_read_or_refused(head: list[str], body: list[list[str]], mark: str) -> None:
    _read_or_refused("\n".join(mark.join(row) for row in [head, *body]).encode(), "m.csv")


@unhurried
@given(st.binary(max_size=200), st.sampled_from(["m.json", "m.csv"]))
def test_any_bytes_are_read_or_refused(data: bytes, name: str) -> None:
    _read_or_refused(data, name)


def _read_or_refused(data: bytes, name: str) -> None:
    said = name
    try:
        read_measurements(data, name)
    except Untrusted as refused:
        said = str(refused)
    assert said.startswith(name)
    assert said.isprintable()


def test_the_pairs_are_those_of_the_file() -> None:
    found = read_measurements(as_bytes(measurements()), "m.json")
    assert found.update_s is not None
    assert found.update_s.timing is not None
    assert found.update_s.timing.kind == "supplied"
    assert found.update_s.timing.ratios == RATIOS
