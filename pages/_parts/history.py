"""The history of studies as a table, and what a search in it keeps. Pure."""

from collections.abc import Mapping, Sequence

import pandas as pd

from recompute_core.settings import shape_key
from recompute_core.studies.store import StudyRow
from recompute_core.words import in_utc, printable, with_training

from .palette import GLYPHS, STORED_MARK
from .words import (
    VERDICTS,
    device_line,
    duration,
    plan_label,
    plan_short,
    shapes_line,
    standing,
    study_label,
    when,
    workload_label,
)

VERDICT_CHOICES = (*(VERDICTS[one] for one in ("adopt", "keep_original", "undecided")), "no verdict")
"""What the list may be narrowed to."""
_PLANS_SHOWN = 3


def history_table(rows: Sequence[StudyRow], spans: Mapping[str, float]) -> pd.DataFrame:
    """The studies in the order given; `spans` are seconds from first to last event, by id."""
    return pd.DataFrame(
        {
            "Verdict": [_standing(row) for row in rows],
            "Workload": [printable(study_label(row.spec)) for row in rows],
            "Shapes": [shapes_line(row.spec) for row in rows],
            "Plans": [_plans(row) for row in rows],
            "Started (UTC)": [in_utc(row.created_at).replace(tzinfo=None) for row in rows],
            "Took": [_took(row, spans) for row in rows],
            "Device": [_fact(row, "device_name") for row in rows],
            "Threads": [_threads(row) for row in rows],
            "torch": [_fact(row, "torch") for row in rows],
            "Python": [_fact(row, "python") for row in rows],
            "Study": [row.id for row in rows],
        }
    )


def has_long_names(row: StudyRow) -> bool:
    """Whether one line has no room for the name of its workload or of one of its plans."""
    return len(study_label(row.spec)) > 20 or any(len(p) > 30 for p in row.spec.plans)


def in_full(row: StudyRow) -> list[tuple[str, str]]:
    """What the table has of a study, with every name whole, and the sentence it ended with."""
    spec = row.spec
    return [
        ("Verdict", printable(row.sentence) or standing(row)),
        ("Workload", printable(spec.workload.name)),
        ("Shapes", ", ".join(shape_key(spec.at(shape)) for shape in spec.shapes)),
        ("Plans", printable(", ".join(map(plan_label, spec.plans)))),
        ("Device", printable(device_line(row.environment, spec.compile))),
        ("Thresholds declared", when(row.declared_at)),
        ("Study", row.id),
    ]


def _plans(row: StudyRow) -> str:
    """The first of a study's plans, and how many more there are."""
    plans = row.spec.plans
    shown = plans if len(plans) <= _PLANS_SHOWN + 1 else plans[:_PLANS_SHOWN]
    more = f" and {len(plans) - len(shown)} more" if len(shown) < len(plans) else ""
    return printable(", ".join(map(plan_short, shown))) + more


def _standing(row: StudyRow) -> str:
    if row.status == "done" or (row.status == "incomplete" and row.verdict):
        kind = STORED_MARK.get(row.verdict, "not_run")
        whole = "" if row.status == "done" else ", incomplete"
        return f"{GLYPHS[kind]} {VERDICTS[row.verdict]}{whole}"
    return f"{GLYPHS['not_run']} {standing(row)}"


def _took(row: StudyRow, spans: Mapping[str, float]) -> str:
    return duration(spans[row.id]) if row.ended and row.id in spans else ""


def _fact(row: StudyRow, name: str) -> str:
    value = row.environment.get(name)
    return "not known" if value in (None, "") else printable(str(value))


def _threads(row: StudyRow) -> int | None:
    threads = row.environment.get("threads")
    return threads if isinstance(threads, int) else None


# --- narrowing it ------------------------------------------------------------------------------------


def workloads(rows: Sequence[StudyRow]) -> list[str]:
    """The workloads there are, by their labels."""
    return sorted({workload_label(row.spec.workload.name) for row in rows})


def kept(
    rows: Sequence[StudyRow], text: str, workload: str | None, verdicts: Sequence[str]
) -> list[StudyRow]:
    """The studies that have every word of `text` somewhere, this workload, and one of these verdicts."""
    words = text.casefold().split()
    return [
        row
        for row in rows
        if (workload is None or workload_label(row.spec.workload.name) == workload)
        and (not verdicts or _choice(row) in verdicts)
        and (not words or _has(row, words))
    ]


def _choice(row: StudyRow) -> str:
    return VERDICTS[row.verdict] if row.verdict else VERDICT_CHOICES[-1]


def _has(row: StudyRow, words: Sequence[str]) -> bool:
    spec = row.spec
    parts = (
        row.id,
        with_training(spec.workload.name, spec),
        shapes_line(spec),
        *spec.plans,
        row.created_at,
        row.status,
    )
    all_of_it = " ".join((*parts, row.sentence, *map(str, row.environment.values()))).casefold()
    return all(word in all_of_it for word in words)
