"""report.html: everything the predicate says stands in it, and nothing that it was not given acts."""

import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cache
from html.parser import HTMLParser
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from playwright.sync_api import Browser, Page
from pypdf import PdfReader

from pages._parts import palette
from recompute_core.intervals import median
from recompute_core.reports import html
from recompute_core.reports.evidence import Evidence
from recompute_core.reports.html import view_of
from recompute_core.reports.page import verdict
from recompute_core.reports.page.document import POLICY, document
from recompute_core.reports.page.markup import el, visible
from recompute_core.reports.page.plot import Scale
from recompute_core.reports.page.regions import regions_in_words, state_of
from recompute_core.reports.page.view import ReportView
from recompute_core.reports.page.words import gap, interval, plan_label, runs
from recompute_core.reports.predicate import Predicate
from recompute_core.reports.read_evidence import read_evidence
from recompute_core.reports.release import release_supplied
from recompute_core.results import Gap
from recompute_core.spec import Region, StudySpec, TimingSettings
from recompute_core.studies.flow import CellKey
from recompute_core.studies.store import Cell
from tests.core import cells, records
from tests.reports import figures
from tests.reports.played import decided, memory, parity_fails
from tests.reports.signing import ANN

# --- reading a page ----------------------------------------------------------------------------

_VOID = {"meta", "link", "br", "hr"}


@dataclass
class Read(HTMLParser):
    """A page as a parser sees it; raises AssertionError where tags do not close each other."""

    tags: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    attributes: list[tuple[str, str, str]] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)
    text: str = ""
    open: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, tuple(name for name, _ in attrs)))
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in _VOID:
            self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.text += data
        if "td" in self.open or "th" in self.open:
            self.rows[-1][-1] += data


def read(page: bytes) -> Read:
    found = Read()
    found.feed(page.decode())
    found.close()
    assert found.open == []
    return found


# --- decisions ---------------------------------------------------------------------------------


@cache
def adopted() -> tuple[Predicate, Evidence]:
    return decided()


@cache
def refused() -> tuple[Predicate, Evidence]:
    long_name = "blocks.1." + "a_module_of_a_long_name." * 7 + "weight"
    gaps = [Gap(part="grad", name=f"{long_name}{n}", absolute=28.5, relative=0.31) for n in range(14)]
    odd = Gap(part="output", name="", absolute=None, relative=None, problem="another shape")

    def worker(key: CellKey) -> Cell | None:
        return parity_fails(key, *gaps, odd) if key[2] == "parity" else None

    return decided(cells.SPEC, "every-block", worker)


@cache
def many() -> tuple[Predicate, Evidence]:
    """Seven lengths whose outcomes differ, in 31 pairs each."""
    spec = StudySpec(
        workload=cells.SPEC.workload,
        shapes=tuple({"seq_len": 16 * n} for n in range(1, 8)),
        plans=("every-block",),
    )

    def worker(key: CellKey) -> Cell | None:
        length = int(key[0].split()[0].removeprefix("T="))
        if key[2] == "time":
            ratios = [1.05 + length / 350 + 0.02 * (n % 5) for n in range(31)]
            return cells.cell(key, records.timing(*ratios))
        if key[2] == "memory" and key[1] != "none":
            return memory(key, 3_400_000 - 9_000 * length, 3_410_000 - 9_000 * length)
        return None

    return decided(spec, "every-block", worker)


@cache
def view() -> ReportView:
    predicate, evidence = adopted()
    return view_of(predicate, read_evidence(evidence))


def render(predicate: Predicate, evidence: Evidence) -> bytes:
    return html.render(predicate, read_evidence(evidence))


# --- what stands in it -------------------------------------------------------------------------


@pytest.mark.parametrize("make", [adopted, refused, many])
def test_every_gate_stands_there_with_threshold_figure_interval_and_outcome(make: Any) -> None:
    predicate, evidence = make()
    rows = [row for row in read(render(predicate, evidence)).rows if len(row) == len(verdict._GATES)][1:]
    gates = [(shape, gate) for shape in predicate.shapes for gate in shape.gates]
    assert len(rows) == len(gates) == 3 * len(predicate.shapes)
    for (_, gate), row in zip(gates, rows, strict=True):
        _, threshold, observed, interval, outcome, kind, declared, words = row
        assert float(threshold) == gate.threshold
        assert outcome == gate.outcome.replace("_", " ")
        assert (declared, words) == ("declared", gate.sentence)
        assert (observed == "–") == (kind == "–") == (gate.observed is None)
        if gate.observed is not None:
            assert float(observed) == pytest.approx(gate.observed, rel=0.02, abs=5e-4)
        edges = re.findall(r"[\d.e-]+", interval.replace("exact", ""))
        if gate.ci95 is not None and edges:
            assert list(map(float, edges)) == pytest.approx(gate.ci95, abs=5e-4)


@pytest.mark.parametrize("make", [adopted, refused, many])
def test_what_the_predicate_says_is_said(make: Any) -> None:
    predicate, evidence = make()
    text = read(render(predicate, evidence)).text
    said = [predicate.sentence, predicate.plan_hash, predicate.study.spec_hash, predicate.rollback.words]
    said += predicate.not_claimed
    said += [proof.sentence for proof in predicate.rollback.proof]
    said += [f"evidence/{name}" for name in evidence]
    said += predicate.rollback.code.splitlines()
    said += [
        "nets.Block",
        "b" * 64,
        "none: built in",
        "c" * 40 + ", changed since",
        "2 × 16 int64",
        "AdamW",
    ]
    for shape in predicate.shapes:
        assert shape.references is not None
        said += [shape.shape_key, shape.references.update, shape.references.batch]
    assert [words for words in said if words not in text] == []


def test_settings_hold_the_number_of_blocks_and_time_lines_say_what_slowed_them() -> None:
    said = read(render(*adopted())).text
    assert f"blocks {cells.SPEC.workload.blocks}" in said
    assert "Recorded under the profiler" in said
    assert "it may have been studied before, under other thresholds" in said


def test_a_preview_is_the_page_with_a_line_above_it() -> None:
    predicate, evidence = adopted()
    page, shown = render(predicate, evidence).decode(), html.preview(predicate, read_evidence(evidence))
    before, _, after = shown.decode().partition("<body>")
    assert after.startswith('<aside class="verdict edge-undecided unsigned">')
    assert f"{before}<body>{after.partition('</aside>')[2]}" == page
    assert "Unsigned preview" in read(shown).text
    assert "Unsigned" not in page


def test_a_supplied_point_is_called_exact_by_nobody() -> None:
    assert interval((0.5, 0.5), True) == "exact"
    assert interval((0.5, 0.5), True, "supplied") == "one value, no interval"


def test_equal_decisions_give_equal_bytes() -> None:
    assert render(*adopted()) == render(*adopted())


def test_few_pairs_are_not_said_to_have_a_95_percent_interval() -> None:
    def page(pairs: int) -> Read:
        def worker(key: CellKey) -> Cell | None:
            return cells.cell(key, records.timing(1.2, 1.25, 1.3)) if key[2] == "time" else None

        spec = cells.SPEC.model_copy(update={"timing": TimingSettings(min_pairs=pairs)})
        return read(render(*decided(spec, "every-block", worker)))

    few, many = page(3), page(9)
    assert "95 % interval" not in few.text + many.text
    assert "at least 95 %, whatever the noise. A gate passes" in many.text
    assert "at least 95 %, whatever the noise. Of 3 pairs, as here, they cover 75 %. A gate" in few.text


def test_few_times_that_were_not_paired_say_what_their_interval_covers() -> None:
    times = {"plain": [0.9, 1.0, 1.1], "candidate": [1.2, 1.3, 1.4]}
    given = figures.as_bytes(figures.measurements(update_s=times))
    evidence = figures.evidence(data=given)
    page = read(release_supplied(evidence, ANN).bundle.files["report.html"])
    assert "made of both medians' own, and covers at least 56.2 %." in page.text


def test_the_ratio_can_be_had_again_from_the_pairs() -> None:
    predicate, evidence = many()
    rows = [
        row for row in read(render(predicate, evidence)).rows if len(row) == 4 and row[0].isdecimal()
    ]
    first = [float(row[2]) / float(row[1]) for row in rows[:31]]
    observed = predicate.shapes[0].gates[2].observed
    assert median(first) == pytest.approx(observed, abs=1e-5)
    assert len(rows) == 31 * len(predicate.shapes)


def test_supplied_figures_are_called_so() -> None:
    page = read(figures.honest().bundle.files["report.html"])
    assert "supplied figures" in page.text
    assert [row[6] for row in page.rows if row[0].startswith("Memory saving")] == ["not declared before"]
    assert "supplied figures" not in read(render(*adopted())).text


def test_over_ranks_it_says_who_shares_the_batch_and_whose_figures_there_are() -> None:
    predicate, found = adopted()
    view = view_of(predicate, read_evidence(found))
    over = {**view.settings, "ranks": {"kind": "fsdp2", "count": 2}}
    text = read(document(replace(view, settings=over))).text
    assert (
        "2 ranks (fsdp2) that share the batch: MB are of the rank with the highest peak, times of the "
        "slowest rank" in text
    )
    assert "The noise floor is plain over 2 ranks against one process." in text
    made = {**view.settings, "compile": {"backend": "inductor"}}
    assert ", compiled by inductor" in read(document(replace(view, settings=made))).text
    alone = read(document(view)).text
    assert "compiled by" not in alone
    assert "that share the batch" not in alone
    assert "The noise floor is plain against plain." in alone


def test_a_refused_plan_has_no_figure_and_says_why() -> None:
    text = read(render(*refused())).text
    assert "No shape has both a peak and an update time" in text
    assert "Memory was not measured at any shape." in text
    assert "And 5 more tensors outside the tolerance." in text
    assert "Median update" not in text


def test_one_shape_has_no_curves_and_shows_what_the_ratios_are() -> None:
    spec = StudySpec(workload=cells.SPEC.workload, shapes=({"seq_len": 16},), plans=("every-block",))
    text = read(render(*decided(spec))).text
    assert "Over the shapes" not in text
    assert "250 ms" in text
    assert "4.00 MB" in text


# --- nothing acts ------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [adopted, refused, many])
def test_nothing_is_fetched_and_no_script_is_there(make: Any) -> None:
    page = render(*make())
    found = read(page)
    assert ("meta", "content", POLICY) in found.attributes
    assert POLICY == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    names = {tag for tag, _ in found.tags}
    assert not names & {"script", "iframe", "object", "embed", "img", "form", "base", "image", "use"}
    for _, name, value in found.attributes:
        assert not name.startswith("on")
        assert name not in ("src", "href", "xlink:href") or value == "data:," or value.startswith("#")
    assert not re.search(rb"url\(|@import|https?:", page)


TEXT = st.text(st.characters(exclude_categories=()), min_size=1, max_size=40)
HOSTILE = st.one_of(
    TEXT,
    st.sampled_from(
        [
            "<script>alert(1)</script>",
            '"><img src=x onerror=alert(1)>',
            "</style><script>",
            "' onload='x",
            "]]>--><!--",
            "&lt;b&gt;",
            "javascript:alert(1)",
            "\u202egpt.exe",
            "a\x00b\x1b[31m",
            "\ud800",
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(plan=HOSTILE, name=HOSTILE, words=HOSTILE)
def test_hostile_text_is_text(plan: str, name: str, words: str) -> None:
    assume(words.strip())  # a blank sentence leaves out what would have held it
    plain = hostile_view("a plan", "a name", "some words")
    page = document(hostile_view(plan, name, words))
    found, harmless = read(page), read(document(plain))
    assert found.tags == harmless.tags
    for each in (plan, name, words):
        assert visible(each) in found.text
    assert b"\x00" not in page


def hostile_view(plan: str, name: str, words: str) -> ReportView:
    """Everywhere that a stranger may have written."""
    found = view()
    one = found.shapes[0]
    reason = one.legality[0].model_copy(update={"block": name})
    gates = tuple(gate.model_copy(update={"sentence": words}) for gate in one.gates)
    assert one.canary is not None
    assert one.parity is not None
    worst = one.parity.model_copy(
        update={"gaps": (Gap(part="grad", name=name, absolute=1e-7, relative=1e-7, problem=words),)}
    )
    shape = replace(
        one,
        shape_key=name,
        gates=gates,
        legality=(reason,),
        parity=worst,
        canary=one.canary.model_copy(update={"break_": words, "block": name}),
        troubles=(words,),
    )
    return replace(
        found,
        plan=f"[{plan}]",  # not one of ours, which are shortened
        sentence=words,
        declared_at=words,
        shapes=(shape,),
        workload={"name": name, "other": words},
        settings={"thing": words},
        environment={"device_name": words},
        blocks=("blocks.0", name),
        regions=(Region.model_construct(modules=(name,), keep=("aten.mm.default",)),),
        study_id=words,
        not_claimed=(words,),
        not_recorded={"file": words},
    )


@given(st.text(st.characters(exclude_categories=())))
def test_any_text_and_any_attribute_come_back_as_they_were(text: str) -> None:
    found = read(el("p", text, title=text).encode())
    assert found.text == visible(text)
    assert found.attributes[0][2] == visible(text)


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("plain, ünïcode 漢字", "plain, ünïcode 漢字"),
        ("a\u202eb", "a\\u202eb"),
        ("line\nbreak", "line\\u000abreak"),
        ("\ud800", "\\ud800"),
        ("10\u202f000", "10\u202f000"),
    ],
)
def test_what_cannot_be_seen_is_shown_by_its_code(text: str, seen: str) -> None:
    assert visible(text) == seen


# --- words and places --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "said"),
    [(None, "–"), (0.0, "0"), (1e-4, "1e-4"), (2.84e-7, "2.8e-7"), (0.31, "0.31"), (28.5, "28.5")],
)
def test_gaps(value: float | None, said: str) -> None:
    assert gap(value) == said


def test_names_that_follow_each_other_are_shortened() -> None:
    order = [f"blocks.{n}" for n in range(8)]
    assert runs(order[:6], order) == "blocks.0 to blocks.5"
    assert (
        runs(["blocks.4", "blocks.0", "blocks.1", "stem"], order) == "blocks.0, blocks.1, blocks.4, stem"
    )
    assert plan_label("blocks:0,1,2,3") == "blocks:0–3"
    assert plan_label("blocks:0,2") == "blocks:0,2"
    assert plan_label("blocks:<script>,1,2") == "blocks:<script>,1,2"


def test_regions_in_words_and_what_they_do_to_a_block() -> None:
    order = [f"blocks.{n}" for n in range(6)]
    regions = (
        Region(modules=("blocks.0", "blocks.1")),
        Region(modules=("blocks.0",)),
        Region(modules=("blocks.2",), keep=("aten.mm.default:0,2",)),
        Region(modules=("blocks.3.attn",)),
        Region(modules=("blocks.4",)),
    )
    assert regions_in_words(regions, order) == [
        "As one: blocks.0, blocks.1.",
        "Each by itself: blocks.0, blocks.4.",
        "blocks.2; outputs of calls 1 and 3 of matmuls are kept.",
        "Attn of blocks.3.",
    ]
    states = [state_of(block, regions) for block in order]
    assert states == ["nested", "recomputed", "selective", "partly", "recomputed", "kept"]


@given(
    st.floats(-1e6, 1e6), st.floats(1e-3, 1e9), st.integers(2, 8), st.floats(allow_nan=False, width=32)
)
def test_ticks_lie_on_the_axis_and_places_never_leave_it(
    low: float, span: float, most: int, value: float
) -> None:
    scale = Scale(low, low + span)
    ticks = scale.ticks(most)
    assert len(ticks) <= most + 1
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    assert 0 <= scale.share(value) <= 1


def test_the_colours_are_those_of_the_pages() -> None:
    css = document(view()).decode()
    light, dark = css.split("@media screen and (prefers-color-scheme: dark)")[:2]
    for colours, part in ((palette.LIGHT, light), (palette.DARK, dark)):
        assert f"--pass: {colours.passed};" in part
        assert f"--fail: {colours.failed};" in part
        assert f"--plain: {colours.plain};" in part
        assert f"--recomputed: {colours.series[0]};" in part
        assert f"--ink: {colours.ink};" in part


# --- in a real Chromium ------------------------------------------------------------------------

A4_PX = 687
"""CSS pixels between the margins of an A4 page: 182 mm."""
_BEYOND = """() => {
  const width = document.documentElement.clientWidth, found = [];
  for (const one of document.body.querySelectorAll('*')) {
    const box = one.getBoundingClientRect(), hidden = one.closest('.hidden, caption, thead');
    if (box.width === 0 || (hidden && getComputedStyle(hidden).position === 'absolute')) continue;
    if (box.right > width + 1 || box.left < -1) found.push(one.outerHTML.slice(0, 90));
    const html = one instanceof HTMLElement && getComputedStyle(one).display !== 'inline';
    if (html && one.scrollWidth > one.clientWidth + 1) found.push('wider ' + one.outerHTML.slice(0, 80));
  }
  return found;
}"""
_SCROLLING = """() => [...document.querySelectorAll('*')].filter(
  (one) => /auto|scroll/.test(getComputedStyle(one).overflowY)
).length"""
_PRINTED = """() => {
  document.querySelectorAll('.hidden, .untitled caption').forEach((one) => one.remove());
  const drawn = [...document.querySelectorAll('svg text')].map((one) => one.textContent);
  return [...document.body.innerText.split(/\\s/), ...drawn];
}"""
_CONTRAST = """() => {
  const light = (rgb) => {
    const [r, g, b] = rgb.match(/[\\d.]+/g).slice(0, 3).map((v) => {
      const c = v / 255;
      return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = light(getComputedStyle(document.body).backgroundColor), found = [];
  const read = document.querySelectorAll('.gates :is(td, th, b, small), .sentence, dd, dt');
  for (const one of read) {
    const ink = light(getComputedStyle(one).color);
    found.push((Math.max(paper, ink) + 0.05) / (Math.min(paper, ink) + 0.05));
  }
  return Math.min(...found);
}"""


@pytest.fixture(params=[adopted, refused, many], ids=lambda make: str(make.__name__))
def saved(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "report.html"
    path.write_bytes(render(*request.param()))
    return path


@dataclass
class Opened:
    """A page opened from disk, the network off, and everything it said or asked for."""

    page: Page
    heard: list[str]


def opened(chromium: Browser, path: Path, theme: Any, width: int) -> Opened:
    context = chromium.new_context(
        color_scheme=theme, viewport={"width": width, "height": 900}, offline=True
    )
    page = context.new_page()
    heard: list[str] = []
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("request", lambda request: heard.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_load_state("networkidle")
    heard.remove(path.as_uri())
    return Opened(page, heard)


@pytest.mark.browser
@pytest.mark.parametrize(("theme", "width"), [("light", 360), ("dark", 1100)])
def test_opened_from_disk_every_gate_is_seen_and_nothing_is_asked_for(
    chromium: Browser, saved: Path, theme: str, width: int
) -> None:
    found = opened(chromium, saved, theme, width)
    gates = found.page.locator(".gates tbody tr:not(.heading)")
    assert gates.count() >= 6
    for number in range(gates.count()):
        for cell in gates.nth(number).locator("td, th").all():
            assert cell.is_visible()
    assert found.page.evaluate(_CONTRAST) >= 4.5
    assert found.page.evaluate(_BEYOND) == []
    assert found.heard == []
    found.page.context.close()


@pytest.mark.browser
def test_no_width_cuts_anything_off(chromium: Browser, saved: Path) -> None:
    found = opened(chromium, saved, "light", 320)
    for width in (320, 420, 600, 863, 865, 959, 961, 1000, 1600):
        found.page.set_viewport_size({"width": width, "height": 900})
        assert (width, found.page.evaluate(_BEYOND)) == (width, [])
    found.page.context.close()


_COVERED = """() => {
  const boxes = (css) => [...document.querySelectorAll('#picture svg ' + css)].map(
    (one) => [one.textContent || one.getAttribute('class'), one.getBoundingClientRect()]
  );
  const names = boxes('.strong'), others = [...names, ...boxes('.edged'), ...boxes('.fill-plain')];
  const meet = (a, b) => a.left < b.right - 1 && b.left < a.right - 1
    && a.top < b.bottom - 1 && b.top < a.bottom - 1;
  return names.flatMap(([name, box]) =>
    others.filter(([, other]) => other !== box && meet(box, other)).map(([other]) => [name, other])
  ).filter(([name, other]) => name !== other);
}"""


@pytest.mark.browser
def test_no_name_in_the_picture_covers_a_mark_or_another_name(chromium: Browser, saved: Path) -> None:
    found = opened(chromium, saved, "light", 420)
    for width in (420, 1100):
        found.page.set_viewport_size({"width": width, "height": 900})
        assert (width, found.page.evaluate(_COVERED)) == (width, [])
    found.page.context.close()


@pytest.mark.browser
def test_the_themes_differ_and_paper_is_white(chromium: Browser, saved: Path) -> None:
    grounds = []
    for theme in ("light", "dark"):
        found = opened(chromium, saved, theme, 900)
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds.append(found.page.evaluate(ground))
        found.page.emulate_media(media="print", color_scheme="dark")
        assert found.page.evaluate(ground) == "rgb(255, 255, 255)"
        found.page.context.close()
    assert grounds == ["rgb(255, 255, 255)", "rgb(18, 22, 28)"]


def squashed(text: str) -> str:
    """Without ligatures, and without what a line break may add or take."""
    return re.sub(r"[\s\u00ad\u2010-]", "", unicodedata.normalize("NFKC", text))


@pytest.mark.browser
@pytest.mark.parametrize("down", [0, 150, 300])
def test_no_page_ends_with_a_heading_or_with_the_head_of_a_table(
    chromium: Browser, saved: Path, down: int
) -> None:
    found = opened(chromium, saved, "light", A4_PX)
    found.page.emulate_media(media="print")
    found.page.evaluate(f"document.querySelector('header').style.paddingTop = '{down}px'")
    heads = (
        "[...document.querySelectorAll('h2, h3, caption, thead, .legend')].map((one) => one.innerText)"
    )
    ends = [squashed(text) for text in found.page.evaluate(heads) if text.strip()]
    for page in PdfReader(BytesIO(found.page.pdf(prefer_css_page_size=True))).pages:
        text = squashed(re.sub(r"\b\d+ of \d+\b", "", page.extract_text(), count=1))
        assert not text.endswith(tuple(ends)), text[-60:]
    found.page.context.close()


@pytest.mark.browser
def test_on_paper_nothing_is_cut_off_and_all_text_is_there(chromium: Browser, saved: Path) -> None:
    found = opened(chromium, saved, "dark", A4_PX)
    found.page.emulate_media(media="print")
    assert found.page.evaluate(_BEYOND) == []
    assert found.page.evaluate(_SCROLLING) == 0
    words = found.page.evaluate(_PRINTED)
    paper = PdfReader(BytesIO(found.page.pdf(prefer_css_page_size=True)))
    assert {tuple(map(round, page.mediabox[2:])) for page in paper.pages} <= {(595, 842), (596, 842)}
    pages = [re.sub(r"\b\d+ of \d+\b", "", page.extract_text(), count=1) for page in paper.pages]
    read_back = squashed("".join(pages))
    assert [word for word in words if squashed(word) not in read_back] == []
    assert read_back.count("adoptregion") == words.count("adopt region")  # not drawn twice
    assert found.heard == []
    found.page.context.close()
