"""`python -m tests.load [--browsers N] [--seconds N]`: many browsers at once; stores that have grown.

Prints tables, and ends with exit code 1 where a page showed an error or a limit was not kept.
"""

import argparse
import sys

from .crowd import Found, crowd
from .piles import Shown, thousand_studies, week_of_events

P95_S, FIRST_S, AGAIN_S, GROWTH = 1.0, 1.5, 0.5, 1.1
"""The limits: of redraws in a crowd; of a page's first showing and its redraws; of memory at the end to
that of a fresh server which shows the same."""


def failures(found: Found) -> list[str]:
    """Which limits a crowd did not keep, each in words."""
    said = [f"trouble: {each}" for each in dict.fromkeys(found.troubles)]
    if found.p95_s > P95_S:
        said.append(f"95 of 100 redraws took up to {found.p95_s:.2f} s, not {P95_S:g}")
    if found.end_mb > GROWTH * found.fresh_mb:
        said.append(f"{found.end_mb:.0f} MB, where a fresh server has {found.fresh_mb:.0f} MB")
    if not found.finished:
        said.append("the study did not go on meanwhile")
    return said


def late(shown: list[Shown]) -> list[str]:
    """Which pages were late or showed an error, each in words."""
    said = [f"{one.page}: {each}" for one in shown for each in one.troubles]
    said += [
        f"{one.page}: first shown after {one.first_s:.2f} s" for one in shown if one.first_s > FIRST_S
    ]
    return said + [
        f"{one.page}: redrawn in {one.again_s:.2f} s" for one in shown if one.again_s > AGAIN_S
    ]


def crowd_table(found: Found) -> str:
    """As Markdown."""
    return (
        "| browsers | for, s | redraws | median, ms | 95 of 100, ms | worst, ms | errors "
        "| memory at the end, MB | of a fresh server then, MB | phases measured meanwhile |\n"
        f"|{'---:|' * 10}\n"
        f"| {found.browsers} | {found.seconds:g} | {found.redraws:,} | {found.median_s * 1e3:.0f} "
        f"| {found.p95_s * 1e3:.0f} | {found.worst_s * 1e3:.0f} | {len(found.troubles)} "
        f"| {found.end_mb:.0f} | {found.fresh_mb:.0f} | {found.finished} |"
    )


def pages_table(of: str, shown: list[Shown]) -> str:
    """As Markdown: the slowest page of a store, and how many errors all of them showed."""
    first, again = max(shown, key=lambda one: one.first_s), max(shown, key=lambda one: one.again_s)
    errors = sum(len(one.troubles) for one in shown)
    return (
        f"| {of} | {len(shown)} | {first.first_s * 1e3:.0f} ({first.page}) "
        f"| {again.again_s * 1e3:.0f} ({again.page}) | {errors} |"
    )


def main() -> None:
    """Run all three."""
    parser = argparse.ArgumentParser(prog="python -m tests.load", description=main.__doc__)
    parser.add_argument("--browsers", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=300.0)
    asked = parser.parse_args()
    many = crowd(asked.browsers, asked.seconds)
    print(crowd_table(many), flush=True)
    heads = ("store", "pages", "slowest first showing, ms", "slowest redraw, ms", "errors")
    print("", f"| {' | '.join(heads)} |", f"|---|{'---:|' * 4}", sep="\n")
    missed = failures(many)
    for of, fill in (
        ("1,000 studies of 200 cells", thousand_studies),
        ("a week of events, 60,480 pairs", week_of_events),
    ):
        shown = fill()
        print(pages_table(of, shown), flush=True)
        missed += late(shown)
    for line in missed:
        print(line, file=sys.stderr)
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
