"""Every page in every state that a study can be in: what it says, where it leads, and that no figure is
shown of what was not measured. One visitor a state walks through all pages.
"""

import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest
from streamlit.testing.v1 import AppTest

from recompute_core.results import PlanResult
from recompute_core.studies.searching import keep_answer
from recompute_core.studies.store import Store
from tests.core import records as make

from . import studies
from .conftest import FRAME, store_at
from .reading import components, figures, text

ONE = studies.spec_of(shapes=[{"seq_len": 128}], plans=["every-block"])
Made = Callable[[Store, ExitStack], str | None]


def _driven(store: Store, held: ExitStack, study: str) -> str:
    """As if its driver lived."""
    lock = store.driver_lock(study)
    assert lock.acquire()
    held.callback(lock.release)
    return study


def _queued(store: Store, held: ExitStack) -> str:
    _driven(store, held, studies.running(store).id)
    return _driven(store, held, store.create(studies.spec_of()))


def _estimated(store: Store, held: ExitStack) -> str:
    """Nothing was measured, but a search has estimates."""
    study = studies.refused_by_parity(store)
    plans = make.plan_answer(make.plan_point("best-3mb", 3_000_000, "blocks.0"))
    found: PlanResult = plans.model_copy(
        update={"shape_key": "T=256 B=4", "chosen": None, "recipes": ()}
    )
    keep_answer(store, study, found)
    return study


STATES: dict[str, Made] = {
    "none": lambda store, held: None,
    "queued": _queued,
    "running": lambda store, held: _driven(store, held, studies.running(store).id),
    "cancelled": lambda store, held: studies.running(store).conclude("cancelled"),
    "interrupted": lambda store, held: studies.running(store).id,
    "failed": lambda store, held: studies.failed(store),
    "refused": lambda store, held: studies.refused_by_parity(store),
    "undecided": lambda store, held: studies.filled(store, ONE, studies.WIDE),
    "missed": lambda store, held: studies.filled(store, ONE, [1.6] * 9),
    "done": lambda store, held: studies.filled(store),
    "what-if": lambda store, held: studies.filled(store),
    "estimated": _estimated,
}
PAGES = (
    "home", "demo", "setup", "live", "tradeoff", "reinvest", "decision", "verify", "studies", "compare",
)  # fmt: skip

EMPTY = ("Nothing has been measured on this machine yet.", "→ Start with the quick study")
WAITS = ("This study waits for its turn.", "→ Watch it live")
RUNS = ("This study is still being measured", "→ Watch it live")
CANCELLED = ("Cancelled; what was finished is kept.", "→ Resume it on Live")
INTERRUPTED = ("Interrupted: its driver is gone; what was finished is kept.", "→ Resume it on Live")
INCOMPLETE = "Ended incomplete: some cells could not be measured."
FAILS = "update latency fails (peak 165.6 MB instead of 276.0 MB (0.60), update 1.60 times as long"
DECLARED = "Judged by the declared thresholds."
TO_DECIDE = "→ Decide and sign"
RELEASE = "Figures measured here, judged by the declared thresholds."
FORM = "[Declare thresholds and launch]"
NO_FORM = ("No candidate of this study passed its gates", "→ See why on Trade-off")
VERDICT = "{sentence}"
"""The verdict's sentence, by the declared thresholds."""

SAYS: dict[str, dict[str, tuple[str, ...]]] = {
    "home": {
        "none": ("Nothing has been measured on this machine yet.", "[Run the quick study]"),
        "queued": ("Queued now: gpt at T=128, 256 B=4.", "Running now: gpt at T=128 B=4."),
        "running": ("Running now: gpt at T=128 B=4.", "→ Watch it live", "Candidates will appear here."),
        "cancelled": ("Cancelled: gpt.", "→ See how far it came"),
        "interrupted": ("Interrupted: gpt.", "→ See how far it came"),
        "failed": (VERDICT, f"{INCOMPLETE} They can be measured again from Live."),
        **dict.fromkeys(("refused", "estimated", "undecided", "missed", "done", "what-if"), (VERDICT,)),
    },
    "demo": {
        "none": ("Nothing that can be shown has been measured here yet.", "[Measure the demo]"),
        "queued": (
            "Queued: gpt starts as soon as the device is free.",
            "A plan has a place in the picture",
        ),
        "running": ("Measuring gpt: time of every-2nd-block", "no verdict yet Not decided yet."),
        "cancelled": (CANCELLED[0], "It can be resumed on Live."),
        "interrupted": (INTERRUPTED[0], "It can be resumed on Live."),
        "failed": (VERDICT, INCOMPLETE),
        **dict.fromkeys(
            ("refused", "estimated"),
            ("is not plain's, so that nothing it costs was", "[Measure the demo]"),
        ),
        **dict.fromkeys(("undecided", "missed", "done"), (VERDICT,)),
        "what-if": ("keep original what-if", "[Back to the declared gates]"),
    },
    "setup": dict.fromkeys(STATES, ("Estimated: 4.7 M parameters", FORM)),
    "live": {
        "none": EMPTY,
        "queued": ("Waiting: next in line behind gpt, 11 of 12 cells.", "[Cancel]", "Nothing yet."),
        "running": ("time 1 of 2 , running now gates 1 of 2 , waiting", "[Cancel]"),
        "cancelled": (CANCELLED[0], "[Resume]", "time 1 of 2 , not run gates 1 of 2 , not run"),
        "interrupted": (INTERRUPTED[0], "[Resume]", "time 1 of 2 , not run gates 1 of 2 , not run"),
        "failed": (VERDICT, INCOMPLETE, "[Resume]", "time 1 of 2 failed , failed"),
        **dict.fromkeys(("refused", "estimated"), (VERDICT, "memory not run , not run")),
        **dict.fromkeys(("undecided", "missed", "done", "what-if"), (VERDICT, "→ Open the trade-off")),
    },
    "tradeoff": {
        "none": EMPTY,
        "queued": (*WAITS, DECLARED, "No candidate has been measured in full, so the picture is empty."),
        "running": (*RUNS, DECLARED, "no verdict yet Not decided yet."),
        "cancelled": (*CANCELLED, DECLARED, "no verdict yet Not decided yet."),
        "interrupted": (*INTERRUPTED, DECLARED, "no verdict yet Not decided yet."),
        "failed": (VERDICT, INCOMPLETE, DECLARED, "→ Resume it on Live", TO_DECIDE),
        "refused": (
            VERDICT,
            DECLARED,
            "so the picture is empty. Not measured Keep the original",
            TO_DECIDE,
        ),
        "estimated": (VERDICT, DECLARED, "Estimated", "[Measure this plan]"),
        **dict.fromkeys(("undecided", "missed"), (VERDICT, DECLARED, TO_DECIDE)),
        "done": (VERDICT, DECLARED, TO_DECIDE, "→ See what the saved memory buys"),
        "what-if": (
            "What-if: thresholds differ from the declared ones keep original what-if",
            "judged by what-if thresholds",
            "[Reset]",
            "[Declare and re-run]",
        ),
    },
    "reinvest": {
        "none": EMPTY,
        **dict.fromkeys(("queued", "running"), ("→ Watch it live",)),
        **dict.fromkeys(("cancelled", "interrupted", "failed", "done", "what-if"), (FORM,)),
        **dict.fromkeys(("refused", "undecided", "missed", "estimated"), (VERDICT, *NO_FORM)),
    },
    "decision": {
        "none": EMPTY,
        **{
            state: (f"{words} There is nothing to release yet.", leads)
            for state, (words, leads) in (
                ("queued", WAITS),
                ("cancelled", CANCELLED),
                ("interrupted", INTERRUPTED),
            )
        },
        "running": ("This study is still being measured. There is nothing to release yet.", RUNS[1]),
        "failed": (VERDICT, RELEASE),
        **dict.fromkeys(
            ("refused", "estimated"), ("parity fails", "This is the verdict at 2 of 2 shapes.", RELEASE)
        ),
        "undecided": (VERDICT, "Update latency update time, ratio to plain undecided", RELEASE),
        "missed": (VERDICT, FAILS, RELEASE),
        "done": (VERDICT, RELEASE),
        "what-if": (VERDICT, RELEASE, "What-if: thresholds on Trade-off differ from the declared ones."),
    },
    "verify": dict.fromkeys(STATES, ("This server trusts no signer", "bundle waiting", "gates waiting")),
    "studies": {
        "none": EMPTY,
        "queued": ("2 studies, newest first.", "○ waiting"),
        "running": ("1 study, newest first.", "○ under way"),
        "cancelled": ("1 study is not complete and can be resumed from Live.", "○ cancelled"),
        "interrupted": ("1 study is not complete and can be resumed from Live.", "○ interrupted"),
        "failed": ("1 study is not complete and can be resumed from Live.", "● adopt"),
        **dict.fromkeys(("refused", "missed", "estimated"), ("1 study, newest", "✕ keep original")),
        "undecided": ("1 study, newest first.", "◆ undecided"),
        **dict.fromkeys(("done", "what-if"), ("1 study, newest first.", "● adopt")),
    },
    "compare": {
        "none": EMPTY,
        "queued": ("A is not complete: queued.", "every-block T=128 B=4 no verdict yet no verdict yet"),
        "running": (
            "A is not complete: running.",
            "every-2nd-block T=128 B=4 no verdict yet no verdict",
        ),
        "cancelled": ("A is not complete: cancelled.", "every-2nd-block T=128 B=4 no verdict yet"),
        "interrupted": ("A is not complete: interrupted.", "every-2nd-block T=128 B=4 no verdict yet"),
        "failed": ("A is not complete: incomplete.", "not in A: time could not be completed"),
        **dict.fromkeys(
            ("refused", "estimated"), ("not in A: parity fails", "keep original keep original")
        ),
        "undecided": ("every-block T=128 B=4 undecided undecided",),
        "missed": ("every-block T=128 B=4 keep original keep original 1.600",),
        **dict.fromkeys(("done", "what-if"), ("every-block T=128 B=4 adopt adopt 1.200",)),
    },
}
UNMEASURED = ("none", "queued", "refused", "estimated")
NOT_OF_A_STUDY = ("setup", "verify")


@dataclass(frozen=True)
class Visit:
    """A visitor, the state that they find, and its study."""

    app: AppTest
    state: str
    sentence: str


@pytest.fixture(scope="module", params=STATES)
def visit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Visit]:
    state = request.param
    with store_at(tmp_path_factory.mktemp("home")) as store, ExitStack() as held:
        study = STATES[state](store, held)
        app = AppTest.from_file(str(FRAME), default_timeout=60)
        if study:
            app.query_params.update({"study": study, "a": study, "b": study, "step": "4"})
        app.run()
        if state == "what-if":
            app.query_params["peak"] = "0.4"
            app.switch_page("tradeoff.py").run()
        yield Visit(app, state, store.study(study).sentence if study else "")


@pytest.mark.parametrize("page", PAGES)
def test_a_page_in_a_state(visit: Visit, page: str) -> None:
    app, state = visit.app, visit.state
    app.switch_page(f"{page}.py").run()
    assert not app.exception, [error.value for error in app.exception]
    assert not app.error
    seen = _seen(app)
    for words in SAYS[page][state]:
        assert words.format(sentence=visit.sentence) in seen
    if page in NOT_OF_A_STUDY:
        return
    marked = re.search("What-if:|original what-if", seen) is not None
    assert marked == (state == "what-if" and page in ("tradeoff", "decision", "demo"))
    if state in UNMEASURED:
        assert not any("every-block" in figure for figure in figures(app))
        pictures = [json.loads(one.proto.json) for one in components(app, "picture")]
        assert not any(picture["points"] for picture in pictures)
        searched = (page, state) == ("tradeoff", "estimated")
        assert sum(len(picture["rings"]) for picture in pictures) == searched
        assert searched or not re.search(r"\d MB|\d ms| times as long", seen)


def _seen(app: AppTest) -> str:
    """The page without the sidebar: its text, [buttons], → links and the cells of its tables."""
    buttons = [f"[{button.label}]" for button in app.button]
    links = [f"→ {link.proto.label}" for link in app.main.get("page_link")]
    cells = [str(cell) for table in app.main.dataframe for cell in table.value.to_numpy().flat]
    return " ".join([text(app.main), *buttons, *links, *cells])
