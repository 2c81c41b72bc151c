"""One reading of JSON, or none."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.strict_json import canonical, parse
from tests.reports.signing import unhurried

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40) + 1, 10**40 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def read(data: bytes) -> Any:
    return parse(data, most_bytes=5_000_000, what="the file")


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b'{"a":1,"a":1}', "duplicate-key"),
        (b'{"a":1,"\\u0061":2}', "duplicate-key"),
        (b'[{"b":{"c":0,"c":0}}]', "duplicate-key"),
        (b"NaN", "not-a-number"),
        (b'{"a":[Infinity]}', "not-a-number"),
        (b"-Infinity", "not-a-number"),
        (b"1e999", "not-a-number"),
        (b"1" * 41, "number-too-long"),
        (b"-" + b"9" * 100_000, "number-too-long"),
        (b"0." + b"1" * 41, "number-too-long"),
        (b"1e" + b"0" * 41, "number-too-long"),
        (b"[" * 65 + b"]" * 65, "too-deep"),
        (b'{"a":' * 65 + b"1" + b"}" * 65, "too-deep"),
        (b"[" * 2_000_000, "too-deep"),
        (b'"a\\\\"' + b"[" * 100_000, "too-deep"),
        (b'"' + b'\\"' * 1_000_000, "not-json"),
        (b"[" + b'"\\\\",' * 100_000, "not-json"),
        (b"\xff", "not-utf8"),
        (b"\xef\xbb\xbf{}", "not-json"),
        (b'"\xed\xa0\x80"', "not-utf8"),
        (b'"\\ud800"', "lone-surrogate"),
        (b'{"\\uDFFF":1}', "lone-surrogate"),
        (b"", "not-json"),
        (b"{} {}", "not-json"),
        (b"{}x", "not-json"),
        (b'{"a":1', "not-json"),
        (b'{"a":1,}', "not-json"),
        (b"{'a':1}", "not-json"),
        (b"01", "not-json"),
        (b'"a\nb"', "not-json"),
        (b"[1] // note", "not-json"),
        (b"{}" + b" " * 5_000_000, "too-large"),
    ],
)
def test_refused(data: bytes, code: str) -> None:
    with pytest.raises(Untrusted) as refused:
        read(data)
    assert refused.value.code == code
    assert str(refused.value).startswith("the file: ")
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"[" * 64 + b"]" * 64, None),
        (b'"' + b"[{" * 100 + b'"', "[{" * 100),
        (b'"\\"' + b"[" * 100 + b'"', '"' + "[" * 100),
        (b"9" * 40, 10**40 - 1),
        (b"-1.5e-7", -1.5e-7),
        (b'"\\ud83d\\ude00"', "\U0001f600"),
        (b" [1, true, null]\n", [1, True, None]),
    ],
)
def test_read(data: bytes, value: Any) -> None:
    assert value is None or read(data) == value
    read(data)


@pytest.mark.parametrize("many", [b"0", b"[]", b'""', b"{}"])
def test_more_values_than_may_be(many: bytes) -> None:
    data = b"[" + (many + b",") * 1000 + b"0]"
    read(data)
    with pytest.raises(Untrusted, match="the file: more than 1000 values"):
        parse(data, most_bytes=10_000, what="the file", most_values=1000)


def test_a_refusal_quotes_no_control_characters() -> None:
    with pytest.raises(Untrusted) as refused:
        read(b'{"\\u001b[2J\\u202ex":1,"\\u001b[2J\\u202ex":2}')
    assert str(refused.value).isascii() and str(refused.value).isprintable()


@unhurried
@given(VALUES)
def test_what_is_written_is_read_back(value: Any) -> None:
    try:
        data = canonical(value)
    except UnicodeEncodeError:
        with pytest.raises(Untrusted, match="surrogate"):
            read(json.dumps(value).encode())
        return
    assert read(data) == value
    assert canonical(read(data)) == data


@unhurried
@given(st.binary() | st.text(alphabet='{}[]":,\\u0e1dN "-.', max_size=60).map(str.encode))
def test_any_bytes_are_read_as_json_reads_them_or_refused(data: bytes) -> None:
    try:
        value = read(data)
    except Untrusted:
        return
    assert value == json.loads(data)


@unhurried
@given(st.text(alphabet="0179eE+-.", min_size=1, max_size=90))
def test_no_number_is_too_long_or_too_large(number: str) -> None:
    try:
        value = read(f'["{number}", {number}]'.encode())
    except Untrusted:
        return
    assert sum(letter.isdigit() for letter in number) <= 40
    assert math.isfinite(value[1])


@pytest.mark.parametrize(
    ("number", "code"),
    [
        ("1e999", "not-a-number"),
        ("-1E+400", "not-a-number"),
        ("1" * 41, "number-too-long"),
        ("1." + "0" * 40, "number-too-long"),
        ("1e-" + "0" * 38 + "12", "number-too-long"),
        ("1" * 40, None),
        ("0." + "1" * 39, None),
        ("1e-999", None),
    ],
)
def test_numbers_at_the_edge(number: str, code: str | None) -> None:
    if code is None:
        assert read(number.encode()) == json.loads(number)
        return
    with pytest.raises(Untrusted) as refused:
        read(number.encode())
    assert refused.value.code == code


def test_canonical_is_sorted_and_tight() -> None:
    assert canonical({"b": [1, 0.5], "a": "é"}) == '{"a":"é","b":[1,0.5]}'.encode()
    for value in (float("nan"), float("inf"), "\ud800"):
        with pytest.raises(ValueError):
            canonical([value])
