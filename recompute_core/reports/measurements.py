"""Measurements from somebody's own trainer, `recompute-measurements/1`: JSON or CSV, from strangers.

JSON, one object; all that is not marked optional is asked for:

    {
      "schema": "recompute-measurements/1",
      "workload": "our 7B model",                      what was trained
      "plan": "every-block",                           what was recomputed
      "shape": {"seq_len": 2048, "batch": 8},          whole numbers by name
      "peak_allocated_bytes": {"plain": [82000000000], "candidate": [41000000000]},
      "update_s": {"pairs": [[1.30, 1.62], [1.31, 1.61], [1.29, 1.63]]},
      "gradients": {"largest_gradient_gap": 3e-07, "largest_relative_gap": 2e-06},
      "supplied_by": "Ada",                            optional
      "provenance": {"machine": "8 x H200", "torch": "2.13.0"},     optional: text by name
      "thresholds": {"peak_ratio": 0.9}                optional
    }

`peak_allocated_bytes`: the highest moment of an update, model and optimizer included, in bytes: one or
more samples of each. `update_s`: seconds of whole updates, pairs of plain and candidate where the two
were run in turn; else two lists, `{"plain": [...], "candidate": [...]}`, whose interval is wider. At
least three of each. `gradients`: the largest gap of any gradient against plain's from the same weights,
batch and random state; absolute, and relative to that tensor's own largest value. Names in
`not_comparable` (missing, not finite, another shape) fail parity. Each of the three may be left out: its
gate is then not run, and no verdict is better than undecided.

CSV (UTF-8, commas, a header line): every row is a sample. Columns `plain_update_s`, `candidate_update_s`
(pairs, where each row with one has the other), `plain_peak_allocated_bytes`,
`candidate_peak_allocated_bytes`, `largest_gradient_gap`, `largest_relative_gap` (the largest of the
column counts), `not_comparable`, and as text, in one row or the same in all, `workload`, `plan`, `shape`
(`seq_len=2048 batch=8`), `supplied_by`, and `provenance.NAME`. A cell without a sample is empty.
"""

import csv
import io
import re
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from ..intervals import coverage
from ..results import Pair, Timing
from ..spec import Thresholds, explain
from ..words import printable
from .refusal import Untrusted, quoted
from .strict_json import parse

SCHEMA = "recompute-measurements/1"
MOST_BYTES = 1_000_000
MOST_SAMPLES = 1000
FEWEST_TIMES = 3
"""Updates of each that are asked for: a median of fewer has no interval."""

_BOM = b"\xef\xbb\xbf"


def _whole(value: Any) -> Any:
    """A whole number that was written as 4e9 or 4000000000.0."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _samples(fewest: int) -> AfterValidator:
    def check(samples: tuple[Any, ...]) -> tuple[Any, ...]:
        if not fewest <= len(samples) <= MOST_SAMPLES:
            raise ValueError(f"expected {fewest} to {MOST_SAMPLES} samples, got {len(samples)}")
        return samples

    return AfterValidator(check)


def _no_digest(name: str) -> str:
    """By `{"sha256":` VERIFY.md finds the digests in a statement."""
    if name == "sha256":
        raise ValueError("sha256 names digests here; choose another name")
    return name


Bytes = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=1, le=2**60)]
Seconds = Annotated[float, Field(strict=True, ge=1e-9, le=1e9)]
GapSize = Annotated[float, Field(strict=True, ge=0, le=1e300)]
Size = Annotated[int, BeforeValidator(_whole), Field(strict=True, ge=1, le=2**31 - 1)]
Text = Annotated[str, Field(strict=True, min_length=1, max_length=200)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_]{0,39}$"), AfterValidator(_no_digest)]
Times = Annotated[tuple[Seconds, ...], _samples(FEWEST_TIMES)]


class _Given(BaseModel):
    """A part of the file; it never changes."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )


class Peaks(_Given):
    """Peak allocated over an update, everything included, bytes."""

    plain: Annotated[tuple[Bytes, ...], _samples(1)]
    candidate: Annotated[tuple[Bytes, ...], _samples(1)]


class Updates(_Given):
    """Seconds of whole updates: pairs, or else two lists."""

    pairs: Annotated[tuple[tuple[Seconds, Seconds], ...], _samples(FEWEST_TIMES)] | None = None
    """Plain and candidate, run in turn."""
    plain: Times | None = None
    candidate: Times | None = None

    @model_validator(mode="after")
    def _pairs_or_lists(self) -> "Updates":
        lists = (self.plain, self.candidate)
        if (self.pairs is None) == (lists == (None, None)) or (self.pairs is None and None in lists):
            raise ValueError("expected either pairs, or both plain and candidate")
        return self

    @property
    def timing(self) -> Timing | None:
        """The pairs as a study keeps them; None where there are none."""
        if self.pairs is None:
            return None
        return Timing(
            kind="supplied",
            source="supplied pairs",
            samples=tuple(Pair(plain_s=plain, candidate_s=own) for plain, own in self.pairs),
            stopped="all pairs taken",
        )


class Gradients(_Given):
    """The largest gaps of any gradient against plain's."""

    largest_gradient_gap: GapSize | None = None
    """Absolute."""
    largest_relative_gap: GapSize | None = None
    """Relative to the tensor's own largest value."""
    not_comparable: Annotated[tuple[Text, ...], Field(max_length=MOST_SAMPLES)] = ()
    """Names of gradients that are missing, not finite or of another shape."""

    @model_validator(mode="after")
    def _says_something(self) -> "Gradients":
        if self.largest_gradient_gap is None and not self.not_comparable:
            raise ValueError("expected largest_gradient_gap; leave gradients out where none was taken")
        return self


class Measurements(_Given):
    """All that one file says."""

    schema_name: Literal["recompute-measurements/1"] = Field(alias="schema")
    workload: Text
    plan: Text
    shape: Annotated[dict[Name, Size], Field(min_length=1, max_length=8)]
    peak_allocated_bytes: Peaks | None = None
    update_s: Updates | None = None
    gradients: Gradients | None = None
    supplied_by: Text | None = None
    provenance: Annotated[dict[Name, Text], Field(max_length=40)] = Field(default_factory=dict)
    thresholds: Thresholds = Thresholds()

    @model_validator(mode="after")
    def _holds_a_figure(self) -> "Measurements":
        if self.peak_allocated_bytes is None and self.update_s is None and self.gradients is None:
            raise ValueError("expected one at least of peak_allocated_bytes, update_s and gradients")
        return self

    @property
    def shape_key(self) -> str:
        """`seq_len=2048 batch=8`."""
        return " ".join(f"{name}={size}" for name, size in self.shape.items())

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a reader of the gates should know, in sentences."""
        said = []
        if self.update_s is not None and self.update_s.pairs is None:
            said.append(
                "The update times were not taken in pairs: what else the machine did meanwhile is not "
                "evened out, and the interval is wider for it."
            )
        elif self.update_s is not None and coverage(len(self.update_s.pairs or ())) < 0.95:
            said.append(
                f"Only {len(self.update_s.pairs or ())} pairs of updates: their interval covers less "
                "than 95 %."
            )
        return tuple(said)


def read_measurements(data: bytes, name: str) -> Measurements:
    """A file's content; a name that ends in `.csv` is CSV, any other JSON. `name` stands in refusals.

    Raises Untrusted: empty, too-large, measurements-form, and as `parse`.
    """
    data = data.removeprefix(_BOM)
    if not data.strip():
        raise Untrusted("empty", f"{name}: is empty")
    if len(data) > MOST_BYTES:
        raise Untrusted("too-large", f"{name}: more than {MOST_BYTES} bytes")
    raw = _from_csv(data, name) if is_csv(name) else parse(data, most_bytes=MOST_BYTES, what=name)
    if not isinstance(raw, dict):
        raise _odd(name, "expected a mapping, with schema, workload, plan and shape")
    try:
        return Measurements.model_validate(raw)
    except ValidationError as error:
        raise _odd(name, printable(explain(error).replace("no such setting", "no such field"))) from None


def is_csv(name: str) -> bool:
    return name.lower().endswith(".csv")


def _odd(where: str, sentence: str) -> Untrusted:
    return Untrusted("measurements-form", f"{where}: {sentence}")


# --- CSV -------------------------------------------------------------------------------------

_NUMBERS: dict[str, TypeAdapter[Any]] = {
    "plain_update_s": TypeAdapter(Seconds),
    "candidate_update_s": TypeAdapter(Seconds),
    "plain_peak_allocated_bytes": TypeAdapter(Bytes),
    "candidate_peak_allocated_bytes": TypeAdapter(Bytes),
    "largest_gradient_gap": TypeAdapter(GapSize),
    "largest_relative_gap": TypeAdapter(GapSize),
}
_TEXTS = ("not_comparable", "workload", "plan", "shape", "supplied_by")
_FREE = "provenance."
_MOST_COLUMNS = 100
_FREE_COLUMN = re.compile(rf"{re.escape(_FREE)}[A-Za-z][A-Za-z0-9_]{{0,39}}")
_NUMBER = re.compile(r"[+-]?\d{1,40}(\.\d{0,40})?([eE][+-]?\d{1,3})?", re.ASCII)

_Cells = dict[str, list[tuple[int, Any]]]
"""What stands in each column: line and value."""


def _from_csv(data: bytes, name: str) -> dict[str, Any]:
    """The same mapping as in JSON."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Untrusted("not-utf8", f"{name}: not UTF-8 at byte {error.start}") from None
    cells = _cells(text, name)
    raw: dict[str, Any] = {"schema": SCHEMA, "provenance": {}}
    for column, found in cells.items():
        if column in _NUMBERS or column == "not_comparable" or not found:
            continue
        value = _one(found, f"{name}: {column}")
        if column.startswith(_FREE):
            raw["provenance"][column.removeprefix(_FREE)] = value
        else:
            raw[column] = _shape(value, f"{name}: shape") if column == "shape" else value
    peaks = {side: _values(cells, f"{side}_peak_allocated_bytes") for side in ("plain", "candidate")}
    if any(peaks.values()):
        raw["peak_allocated_bytes"] = {side: found for side, found in peaks.items() if found}
    if times := _times(cells, name):
        raw["update_s"] = times
    gaps = {
        gap: max(found)
        for gap in ("largest_gradient_gap", "largest_relative_gap")
        if (found := _values(cells, gap))
    }
    odd = _values(cells, "not_comparable")
    if gaps or odd:
        raw["gradients"] = {**gaps, "not_comparable": odd}
    return raw


def _cells(text: str, name: str) -> _Cells:
    rows = csv.reader(io.StringIO(text, newline=""), strict=True)
    columns: list[str] = []
    cells: _Cells = {}
    try:
        for row in rows:
            line = rows.line_num
            if not any(cell.strip() for cell in row):
                continue
            if not columns:
                columns = _columns([cell.strip() for cell in row], f"{name}, line {line}")
                cells = {column: [] for column in columns}
                continue
            if len(row) != len(columns):
                raise _odd(
                    f"{name}, line {line}", f"{len(row)} fields; the header has {len(columns)} columns"
                )
            for column, cell in zip(columns, row, strict=True):
                if cell.strip():
                    where = f"{name}, line {line}, {column}"
                    cells[column].append((line, _value(column, cell.strip(), where)))
    except csv.Error as error:
        raise _odd(f"{name}, line {rows.line_num}", f"not CSV: {error}") from None
    return cells


def _columns(names: list[str], where: str) -> list[str]:
    if len(names) > _MOST_COLUMNS:
        raise _odd(where, f"{len(names)} columns; at most {_MOST_COLUMNS} are read")
    for column in names:
        if names.count(column) > 1:
            raise _odd(where, f"the column {quoted(column)} stands twice")
        if column in _NUMBERS or column in _TEXTS or _FREE_COLUMN.fullmatch(column):
            continue
        for mark, word in ((";", "semicolons"), ("\t", "tabs"), ("|", "bars")):
            if mark in column:
                raise _odd(
                    where, f"columns are separated by {word}; write commas, and decimals with a point"
                )
        known = ", ".join((*_NUMBERS, *_TEXTS, f"{_FREE}NAME"))
        raise _odd(where, f"no such column {quoted(column)}; known: {known}")
    return names


def _value(column: str, cell: str, where: str) -> Any:
    if column not in _NUMBERS:
        return cell
    if not _NUMBER.fullmatch(cell):
        raise _odd(where, f"expected a number with a decimal point, got {quoted(cell)}")
    number: float = float(cell)
    if cell.lstrip("+-").isdecimal():
        number = int(cell)
    try:
        return _NUMBERS[column].validate_python(number)
    except ValidationError as error:
        raise _odd(where, explain(error).lstrip(": ")) from None


def _values(cells: _Cells, column: str) -> list[Any]:
    return [value for _, value in cells.get(column, [])]


def _one(found: list[tuple[int, Any]], where: str) -> Any:
    first_line, first = found[0]
    for line, value in found:
        if value != first:
            raise _odd(where, f"{quoted(first)} in line {first_line}, {quoted(value)} in line {line}")
    return first


def _shape(text: str, where: str) -> dict[str, int]:
    shape: dict[str, int] = {}
    for part in text.split():
        size, _, number = part.partition("=")
        if size in shape or not (number.isascii() and number.isdecimal() and len(number) <= 10):
            raise _odd(where, f"expected sizes such as seq_len=2048 batch=8, got {quoted(text)}")
        shape[size] = int(number)
    return shape


def _times(cells: _Cells, name: str) -> dict[str, Any]:
    plain, own = (dict(cells.get(f"{side}_update_s", [])) for side in ("plain", "candidate"))
    if not plain and not own:
        return {}
    if plain.keys() == own.keys():
        return {"pairs": [[plain[line], own[line]] for line in plain]}
    if plain.keys() & own.keys():
        alone = min(plain.keys() ^ own.keys())
        raise _odd(
            f"{name}, line {alone}",
            "one update time without the other; give pairs in every row, or no row with both",
        )
    return {
        side: list(found.values()) for side, found in (("plain", plain), ("candidate", own)) if found
    }
