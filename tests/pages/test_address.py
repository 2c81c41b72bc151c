"""The form of Set up in the address: what it holds comes back, and nothing hostile breaks the page."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from streamlit.testing.v1 import AppTest

from pages._parts import ask, setup_form
from pages._parts.address import Number, OneOf, SomeOf, Texts, Truth, faults
from pages._parts.setup_form import FIELDS
from recompute_core.spec import StudySpec

from .conftest import FRAME, OpenPage

FUZZED = settings(
    max_examples=12, deadline=None, derandomize=True, database=None, phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip


@pytest.mark.parametrize(
    ("field", "given_", "says"),
    [
        (OneOf(["a", "b"]), ["b"], None),
        (OneOf(["a", "b"]), ["c"], "is none of a, b"),
        (OneOf(["a", "b"]), [""], "is none of a, b"),
        (SomeOf(["a", "b"]), ["b", "a"], None),
        (SomeOf(["a", "b"]), [""], None),
        (SomeOf([str(n) for n in range(24)]), ["3", "24"], "is none of 0 to 23"),
        (Number(), ["-1e-7"], None),
        *((Number(), [text], "is not a number") for text in ("nan", "-inf", "1e999", "x", "", "0x1")),
        (Number(1, 1024, whole=True), ["1024"], None),
        *(
            (Number(1, 1024, whole=True), [text], "is not a whole number")
            for text in ("1e400", "2.5", "6.0", "")
        ),
        *(
            (Number(1, 1024, whole=True), [text], "is not a whole number from 1 to 1,024")
            for text in ("0", "-3", "1025", "9" * 40)
        ),
        (Number(may_be_empty=True), [""], None),
        (Truth(), ["TRUE"], None),
        (Truth(), ["1"], "is neither true nor false"),
        (Texts(2, 3), ["abc", ""], None),
        (Texts(2, 3), ["a", "b", "c"], "are more than 2"),
        (Texts(2, 3), ["abcd"], "is longer than 3 characters"),
    ],
)
def test_what_a_field_can_hold(field: Any, given_: list[str], says: str | None) -> None:
    assert field.fault(given_) == says


def test_a_fault_names_the_field_and_a_long_value_is_cut() -> None:
    said = faults({"max_peak": ["9" * 50 + "x"], "rng": ["ignore"], "foreign": ["x"]}, FIELDS)
    assert said == {"max_peak": f"Peak, at most: “{'9' * 39}…” is not a number"}


# --- there and back --------------------------------------------------------------------------------


def _some(options: Any, least: int = 0) -> Any:
    return st.lists(st.sampled_from(list(options)), unique=True, min_size=least, max_size=4)


@st.composite
def forms(draw: Any) -> dict[str, Any]:
    """What the fields may hold, most of them left as they are."""
    workload = draw(st.sampled_from(["gpt", "receipts"]))
    blocks = draw(st.integers(2, 96))
    heads = draw(st.integers(1, 12))
    sizes = ["64", "200", "777"] if workload == "gpt" else ["96x64", "64x32", "128x112"]
    some = {
        f"{workload}_heads": heads,
        f"{workload}_width": heads * 2 * draw(st.integers(1, 40)),
    }
    may: dict[str, Any] = {
        "plans": _some(ask.BLOCK_RECIPES),
        "finer": _some(ask.FINER_RECIPES),
        setup_form.BY_HAND: _some(map(str, range(blocks)), 1),
        f"{workload}_lengths": _some(sizes, 1),
        f"{workload}_batches": _some(["1", "3", "16"], 1),
        "max_peak": st.floats(0.01, 1),
        "max_update": st.floats(1, 9),
        "max_gap": st.floats(1e-12, 0.9),
        "max_relative": st.floats(1e-12, 0.9),
        "variant": st.sampled_from(("call", "forward")),
        "rng": st.sampled_from(("preserve", "ignore")),
        "effort": st.sampled_from(list(ask.EFFORTS)),
        "precision": st.sampled_from(("float32", "bfloat16")),
        "threads": st.integers(1, 64),
    }
    if workload == "receipts":
        may |= {"norm": st.sampled_from(("layer", "batch")), "dropout": st.floats(0, 0.9)}
    held = {name: draw(how) for name, how in may.items() if draw(st.booleans())}
    return {"workload": workload, f"{workload}_blocks": blocks, **some, **held}


@pytest.fixture
def specs(monkeypatch: pytest.MonkeyPatch) -> list[StudySpec | str]:
    """What the page made of its fields, each time it was drawn: a specification, or its fault."""
    made: list[StudySpec | str] = []

    def kept(choices: ask.Choices) -> StudySpec:
        try:
            made.append(specification(choices))
        except Exception as error:
            made.append(str(error))
            raise
        return made[-1]

    specification = ask.specification
    monkeypatch.setattr(ask, "specification", kept)
    return made


def _opened(address: dict[str, Any]) -> AppTest:
    app = AppTest.from_file(str(FRAME), default_timeout=30)
    app.run()
    for name, value in address.items():
        app.query_params[name] = value
    app.switch_page("setup.py").run()
    assert not app.exception, [one.value for one in app.exception]
    return app


def _hold(app: AppTest, form: dict[str, Any]) -> None:
    """Fill the fields; blocks last, as there must be so many first."""
    for names in (set(form) - {setup_form.BY_HAND}, set(form) & {setup_form.BY_HAND}):
        for name in names:
            app.session_state[name] = form[name]
        app.run()
    assert not app.exception, [one.value for one in app.exception]


def _written(form: dict[str, Any]) -> dict[str, Any]:
    """What the browser writes into the address; that it does is seen in tests/browser."""
    return {
        name: value if isinstance(value, list) and value else str(value or "")
        for name, value in form.items()
    }


@FUZZED
@given(forms())
def test_every_form_comes_back_from_its_address(
    open_page: OpenPage, specs: list[StudySpec | str], form: dict[str, Any]
) -> None:
    app = open_page("setup")
    app.session_state["workload"] = form["workload"]
    app.run()
    _hold(app, form)
    wanted = specs[-1]
    again = _opened(_written(form))
    assert specs[-1] == wanted
    assert not again.warning
    assert {name: again.session_state[name] for name in form} == form
    assert set(again.query_params) <= set(form)


HOSTILE = st.one_of(
    st.sampled_from(
        [
            "", "1e400", "-1e400", "nan", "0", "-1", "2147483648", "9" * 4000, "1_0", "٣", "\0",
            "\u202e", "<script>alert(1)</script>", "../../etc/passwd", "${7*7}", "true", "null", "[]",
            "a=b&c=d",
            "hf:LlamaConfig?num_hidden_layers=1e9", "own:os:system", "blocks:0", "1x1", "99999x1",
        ]
    ),
    st.text(max_size=60),
)  # fmt: skip


@FUZZED
@given(st.dictionaries(st.sampled_from([*FIELDS, "by_hand"]), st.lists(HOSTILE, min_size=1, max_size=3)))
def test_no_address_breaks_the_page(store: Any, address: dict[str, list[str]]) -> None:
    address.pop("model", None)  # would be built, in a process of its own
    app = _opened(address)
    assert len(app.warning) <= 1
    assert len(app.error) <= 1
    for said in [*app.warning, *app.error]:
        assert "\n" not in said.value
    for name in ("workload", "variant", "rng", "effort", "precision"):
        field = FIELDS[name][1]
        if name in app.session_state:
            assert field.fault([str(app.session_state[name])]) is None
