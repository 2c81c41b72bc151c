"""Inputs that random ones have found, each the smallest that went wrong once."""

import io
import json
import sqlite3
import zipfile
from pathlib import Path

import pytest

from recompute_core.asking import asked, assign, read_yaml
from recompute_core.errors import LONGEST, InputError, StoreError, StudyError
from recompute_core.plain_yaml import MOST_LETTERS, parse_yaml
from recompute_core.reports.evidence import gather
from recompute_core.reports.keys import check_new_passphrase
from recompute_core.reports.refusal import Untrusted
from recompute_core.reports.verify import verify_zip
from recompute_core.studies.assemble import assemble
from recompute_core.studies.store import Store
from recompute_core.workloads.registered import settings_of
from tests.pages import studies
from tests.reports.signing import LATER, SIGNERS

from .rows import make_home

# --- YAML --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("!!timestamp foo", "x: not YAML: "),
        ("!!int ''", "x: not YAML: "),
        ("!!bool y", "x: not YAML: "),
        ("2020-99-99", "x: not YAML: month must be in 1..12"),
        ("&a [*a]", "x: a value holds itself, line 1"),
        ("a: &a\n  b: *a", "x: a value holds itself, line 1"),
        ("{a: 1, a: 2}", "x: the key 'a' stands twice, line 1"),
        ("a: 1\nb:\n  c: 1\n  c: 2", "x: the key 'c' stands twice, line 4"),
        ("{1: a, 0x1: b}", "x: the key '0x1' stands twice, line 1"),
        ("{1: a, 1.0: b}", "x: the key '1.0' stands twice, line 1"),
        ("{yes: a, true: b}", "x: the key 'true' stands twice, line 1"),
        ("{a: 1, 'a': 2}", "x: the key 'a' stands twice, line 1"),
        ("{<<: {a: 1}, <<: {b: 1}}", "x: the key '<<' stands twice, line 1"),
        ("a: 1" + 200 * ":1", "x: a number of 401 letters, line 1"),
        ("- a\n- " + 401 * "9", "x: a number of 401 letters, line 2"),
        ("1." + 399 * "9", "x: a number of 401 letters, line 1"),
        (f"!!int '{401 * '9'}'", "x: a number of 401 letters, line 1"),
        (f"{{0x{399 * 'f'}: 1}}", "x: a number of 401 letters, line 1"),
        ("[" * 5000, "x: nested too deeply"),
        ("!!python/object/apply:os.system ['true']", "x: not YAML: could not determine a constructor"),
        ("a\0b", "x: not YAML: unacceptable character"),
    ],
)
def test_yaml_that_is_refused(text: str, why: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_yaml(text, "x")
    assert str(caught.value).startswith(why)


@pytest.mark.parametrize("more", ["[{0}]", "{{<<: [{0}]}}"])
def test_names_that_repeat_each_other_are_weighed_before_they_are_written_out(more: str) -> None:
    """Ten of ten of ten …: 508 letters took five seconds, and two more lines for ever."""
    first = "{x0: 1}" if "<<" in more else "[x]"
    lines = [f"a0: &a0 {first}"]
    for level in range(1, 40):
        lines.append(f"a{level}: &a{level} {more.format(', '.join([f'*a{level - 1}'] * 10))}")
    with pytest.raises(InputError, match="repeats itself beyond measure, line "):
        parse_yaml("\n".join(lines), "x")


def test_a_long_text_that_is_repeated_counts_as_often_as_it_stands() -> None:
    with pytest.raises(InputError, match="repeats itself beyond measure"):
        parse_yaml(f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 50)}]", "x")


def test_names_and_merges_that_say_little_are_read() -> None:
    text = "base: &base {seq_len: 64}\nshapes: [*base, {<<: *base, batch: 2}]"
    assert parse_yaml(text, "x")["shapes"] == [{"seq_len": 64}, {"seq_len": 64, "batch": 2}]
    assert parse_yaml("", "x") is None


def test_numbers_of_a_usual_length_and_texts_of_any_are_read() -> None:
    assert parse_yaml(f"[{400 * '9'}, 1:30:00, 0x10, 1e3]", "x") == [int(400 * "9"), 5400, 16, "1e3"]
    assert parse_yaml(f"a: '{1000 * '9'}'", "x") == {"a": 1000 * "9"}
    assert parse_yaml("{1: a, '1': b, <<: {'<<': c}, .nan: d}", "x")["1"] == "b"


def test_a_specification_of_any_length_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # takes no place on the disk
    with pytest.raises(InputError, match="a specification has at most that"):
        read_yaml(path)
    with pytest.raises(InputError, match=f"more than {MOST_LETTERS} letters"):
        parse_yaml("#" * (MOST_LETTERS + 1), "x")


def test_a_setting_of_anothers_model_that_is_no_date() -> None:
    with pytest.raises(InputError, match="month must be in"):
        settings_of("hf:LlamaConfig?a=2020-99-99")


def test_a_setting_that_repeats_itself() -> None:
    with pytest.raises(InputError, match="holds itself"):
        assign({}, "plans=&a [*a]")


# --- one short line ----------------------------------------------------------------------------


@pytest.mark.parametrize("said", ["a" * 10_000, "a\r\nb", "\x1b[2J", "\u202eabc", "a\u2028b", "\ud800"])
@pytest.mark.parametrize("kind", [InputError, StoreError, StudyError])
def test_what_an_error_quotes_stays_one_short_printable_line(kind: type[Exception], said: str) -> None:
    for text in (str(kind(f"x: {said}: y")), str(Untrusted("code", f"x: {said}: y"))):
        assert text.startswith("x: ")
        assert text.endswith(": y")
        assert text.isprintable()
        assert len(text) <= LONGEST


def test_a_preset_of_ten_thousand_letters() -> None:
    with pytest.raises(InputError) as caught:
        asked("a" * 10_000, None, (), ())
    assert len(str(caught.value)) <= LONGEST
    assert str(caught.value).endswith("known: quick, gpt-sweep, receipt")


# --- reports and keys --------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", "\0x"])
def test_a_file_without_a_name_in_a_zip(name: str) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(zipfile.ZipInfo("n" * max(1, len(name))), b"")
    data = buffer.getvalue()
    if name:
        data = data.replace(b"nn", name.encode())
    else:  # the name's length in both headers, and the name
        local, entry = data.index(b"PK\3\4"), data.index(b"PK\1\2")
        shorter = bytearray(data)
        shorter[local + 26], shorter[entry + 28] = 0, 0
        end = bytes(shorter[-22:])
        start = entry - 1
        end = end[:12] + (46).to_bytes(4, "little") + start.to_bytes(4, "little") + end[20:]
        data = bytes(shorter[: local + 30] + shorter[entry : entry + 46]) + end
    found = verify_zip(data, SIGNERS, LATER)
    assert found.document()["code"] == "unsafe-name"


def test_a_passphrase_that_is_half_of_a_letter() -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        check_new_passphrase("12345678\udcff")


# --- a store that is damaged, or was made by somebody else -------------------------------------

ROWS = [
    ("studies", "environment", "{"),
    ("studies", "environment", "[" * 100_000),
    ("studies", "id", "../../outside"),
    ("studies", "id", "/etc"),
    ("studies", "spec", b"{}"),
    ("studies", "sentence", b"1"),
    ("cells", "payload", "{"),
    ("cells", "payload", "[{}, null]"),
    ("cells", "payload", 7),
    ("cells", "payload", b"\xff"),
    ("cells", "shape_key", b"\n"),
    ("cells", "phase", "dance"),
    ("cells", "state", ""),
    ("cells", "seconds", "long"),
    ("cells", "started_at", "now"),
    ("events", "data", ""),
    ("events", "data", b"\xff"),
    ("events", "at", "done"),
]


def _damaged(home: Path, table: str, column: str, value: object) -> tuple[Store, str]:
    study = make_home(home)
    db = sqlite3.connect(home / "recompute.sqlite3")
    db.execute(
        f"UPDATE {table} SET {column} = ? WHERE rowid = (SELECT MIN(rowid) FROM {table})", (value,)
    )
    db.commit()
    db.close()
    return Store(home), study if column != "id" else str(value)


@pytest.mark.parametrize(("table", "column", "value"), ROWS)
def test_a_row_that_says_nonsense_is_a_damaged_study(
    tmp_path: Path, table: str, column: str, value: object
) -> None:
    store, study = _damaged(tmp_path, table, column, value)
    with pytest.raises(StudyError, match="is damaged or was written by another version"):
        store.study(study), store.cells(study), store.events(study)
    assert [row.id for row in store.studies()] == ([] if table == "studies" else [study])
    assert store.spans().keys() <= {study}
    store.close()


@pytest.mark.parametrize("payload", [{}, {"passed": "yes"}, {"passed": False}, {"caught": 1}])
@pytest.mark.parametrize("phase", ["reference", "canary", "parity", "memory", "time"])
def test_a_finding_that_is_none_is_a_damaged_study(
    tmp_path: Path, phase: str, payload: dict[str, object]
) -> None:
    store = Store(tmp_path)
    study = studies.filled(store)
    with store._transaction() as db:
        db.execute("UPDATE cells SET payload = ? WHERE phase = ?", (json.dumps(payload), phase))
    with pytest.raises(StudyError, match="damaged"):
        assemble(store.study(study), store.cells(study))
    with pytest.raises(InputError, match=r"measured by another version|canary of .* was missed"):
        gather(store, study, "every-block")
    store.close()


def test_an_environment_beyond_numbers_is_not_reported(tmp_path: Path) -> None:
    store, study = _damaged(tmp_path, "studies", "environment", '{"load": Infinity}')
    with pytest.raises(InputError, match="measured by another version"):
        gather(store, study, "every-block")
    store.close()
