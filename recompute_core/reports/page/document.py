"""The whole page: one file, no script, nothing fetched, light and dark, fit to be printed on A4."""

from collections.abc import Callable
from functools import cache
from pathlib import Path

from . import parity, picture, provenance, regions, samples, second_use, supplied, timeline, verdict
from .curves import curves
from .markup import Html, el, join, paragraph
from .view import ReportView

POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
Section = Callable[[ReportView], Html | None]

_SECTIONS: tuple[tuple[str, str, Section], ...] = (
    ("gates", "Gates", verdict.gates),
    ("picture", "The picture", picture.picture),
    ("curves", "Over the shapes", curves),
    ("timeline", "Memory over an update", timeline.timelines),
    ("parity", "Parity", parity.parity),
    ("recomputed", "What was recomputed", regions.recomputed),
    ("second-use", "A second use of the saved memory", second_use.second_use),
    ("environment", "Environment", provenance.environment),
    ("revisions", "Model and block revisions", provenance.revisions),
    ("digests", "Digests", provenance.digests),
    ("thresholds", "Thresholds", provenance.thresholds),
    ("rollback", "Rollback", provenance.rollback),
    ("not-claimed", "What this report does not claim", provenance.not_claimed),
    ("samples", "Raw samples", samples.samples),
)

_OF_SUPPLIED: tuple[tuple[str, str, Section], ...] = (
    ("gates", "Gates", verdict.gates),
    ("picture", "The picture", picture.picture),
    ("parity", "Parity", supplied.parity),
    ("provenance", "Where the figures come from", supplied.provenance),
    ("digests", "Digests", provenance.digests),
    ("thresholds", "Thresholds", supplied.thresholds),
    ("not-claimed", "What this report does not claim", provenance.not_claimed),
    ("samples", "Raw samples", supplied.samples),
)
"""Of figures that were supplied: what nobody here has seen has no place."""


def document(view: ReportView, *, is_preview: bool = False) -> bytes:
    """The page as UTF-8: the same view, the same bytes. A preview says at its top that it is one."""
    sections = _SECTIONS if view.supplied is None else _OF_SUPPLIED
    drawn = [(slug, name, section(view)) for slug, name, section in sections]
    kept = [(slug, name, inside) for slug, name, inside in drawn if inside]
    links = el("ul", [el("li", el("a", name, href=f"#{slug}")) for slug, name, _ in kept])
    body = join(
        verdict.unsigned() if is_preview else None,
        verdict.head(view),
        el("nav", links, aria_label="Contents"),
        el(
            "main",
            [
                el("section", el("h2", name), inside, id=slug, class_="part")
                for slug, name, inside in kept
            ],
        ),
        el("footer", paragraph(_footer(view))),
    )
    head = join(
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("link", rel="icon", href="data:,"),
        el("title", verdict.title(view)),
        el("style", style()),
    )
    page = "<!doctype html>\n" + el("html", el("head", head), el("body", body), lang="en") + "\n"
    return page.encode()


@cache
def style() -> Html:
    """The style sheet, which no one but us writes."""
    return Html(Path(__file__).with_name("style.css").read_text(encoding="utf-8"))


def _footer(view: ReportView) -> str:
    study = f" of study {view.study_id}" if view.study_id else ""
    return f"Report on {view.plan}{study}. The page needs no network and runs no script."
