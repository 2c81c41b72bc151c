"""The form of Reinvest in the address: what it holds comes back; what no field can hold is said."""

from typing import Any

import pytest

from pages._parts import reinvest_ask
from recompute_core.reinvest.asked import ReinvestSpec
from recompute_core.spec import parse_spec
from recompute_core.studies.store import Store

from . import studies
from .conftest import OpenPage
from .reading import shown

AT = "192x96B16"
RECEIPTS = {"workload": {"name": "receipts", "blocks": 2}, "plans": ["every-block", "blocks:0"]}


@pytest.fixture
def study(store: Store) -> str:
    """A finished study of receipts whose plans passed."""
    return studies.filled(store, parse_spec(RECEIPTS), peak_ratio=0.4)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[ReinvestSpec]:
    """What the page made of its fields, each time it was drawn."""
    made: list[ReinvestSpec] = []

    def kept(wanted: reinvest_ask.Wanted) -> ReinvestSpec:
        made.append(request_of(wanted))
        return made[-1]

    request_of = reinvest_ask.request_of
    monkeypatch.setattr(reinvest_ask, "request_of", kept)
    return made


FORM: dict[str, Any] = {
    "preset": "full",
    f"effective_{AT}": 96,
    f"microbatch_{AT}": 24,
    f"other_{AT}": 192,
    "seeds": ["0", "17"],
    "examples_full": 4096,
    "gap": 2e-5,
    "rate": 1.15,
    "loss": 0.1,
}


def test_the_form_comes_back_from_its_address(
    open_page: OpenPage, study: str, asked: list[ReinvestSpec]
) -> None:
    app = open_page("reinvest", study=study)
    usual = asked[-1]
    app.session_state["preset"] = "full"
    app.run()
    for name, value in FORM.items():
        app.session_state[name] = value
    app.run()
    wanted = asked[-1]
    assert wanted != usual
    assert (wanted.effective_batch, wanted.microbatch, wanted.training.seeds) == (96, 24, (0, 17))
    written = {name: v if isinstance(v, list) else str(v) for name, v in FORM.items()}
    again = open_page("reinvest", study=study, **written)
    assert asked[-1] == wanted
    assert not again.warning


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("preset", "huge", "Preset: “huge” is none of quick, full"),
        (f"effective_{AT}", "4", "Effective batch: “4” is not a whole number from 16 to"),
        (f"microbatch_{AT}", "1e400", "Microbatch under the plan: “1e400” is not a whole number"),
        ("gap", "nan", "Accumulation gap, at most: “nan” is not a number"),
        ("rate", "0", "Examples per second, at least: “0” is not a number from 0.01 to 100"),
        ("loss", "<b>1</b>", "Rare recall lost, at most: “<b>1</b>” is not a number"),
        ("examples_quick", "-1", "Examples in each run: “-1” is not a whole number from 1 to"),
        ("plan", "nested", "Candidate: “nested” is none of every-block, blocks:0"),
        ("shape", "1x1", "Shape: “1x1” is none of 192x96 B=16"),
    ],
)
def test_what_no_field_can_hold_is_one_line(
    open_page: OpenPage, study: str, asked: list[ReinvestSpec], name: str, value: str, says: str
) -> None:
    open_page("reinvest", study=study)
    usual = asked[-1]
    app = open_page("reinvest", study=study, **{name: value})
    assert len(app.warning) == 1
    assert says in shown(app.warning[0].value)
    assert asked[-1] == usual
    assert name not in app.query_params


def test_the_candidate_is_in_the_address(
    open_page: OpenPage, study: str, asked: list[ReinvestSpec]
) -> None:
    app = open_page("reinvest", study=study, plan="blocks:0")
    assert asked[-1].plan == "blocks:0"
    assert app.query_params["plan"] == "blocks:0"
    app.selectbox(key="reinvest candidate").select_index(0).run()
    assert asked[-1].plan == "every-block"
    assert "plan" not in app.query_params
