"""Where the figures come from, what was declared, how to go back, and what is not claimed."""

from collections.abc import Mapping
from typing import Any

from ...results import Reference, Revisions, SourceRevision
from ...spec import Thresholds
from ...words import count
from .markup import Column, Group, Html, bullets, code, el, facts, join, paragraph, table
from .view import ReportView
from .words import gap, when

_NAMES = {
    "device_name": "device name",
    "cpu_count": "processors",
    "float32_matmul_precision": "float32 matmul precision",
    "deterministic_algorithms": "deterministic algorithms",
    "cpu_capability": "CPU capability",
    "git_commit": "Recompute Studio at commit",
    "seq_len": "sequence length",
    "image_width": "image width",
    "max_pairs": "most pairs",
    "min_pairs": "fewest pairs",
    "budget_s": "budget (s)",
    "lr": "learning rate",
    "weight_decay": "weight decay",
    "early_stop": "early stop",
    "rng": "random numbers",
    "state_digest": "digest of its state",
}
_FIRST = ("device", "device_name", "threads", "cpu_count", "torch", "python", "numpy")
"""Facts about the environment that are shown before all others."""
_LIMITS = (
    ("gradient_gap", "Gap of a gradient", "largest absolute gap of any gradient"),
    ("relative_gap", "Relative gap", "largest gap of any tensor, of its own largest value"),
    ("peak_ratio", "Peak", "peak memory, ratio to plain"),
    ("update_ratio", "Update time", "median update, ratio to plain"),
)


def thresholds(view: ReportView) -> Html:
    """What was declared and when, and what the gates were judged by."""
    columns = [Column("Threshold"), Column("Meaning"), Column("Declared (at most)", number=True)]
    rows = [(word, meaning, _limit(view.thresholds, name)) for name, word, meaning in _LIMITS]
    began = f"; measuring began {when(view.first_measured_at)}" if view.first_measured_at else ""
    return join(
        paragraph(
            f"Declared {when(view.declared_at)}{began}. The gates of this report were judged by the "
            "declared thresholds."
        ),
        bullets(view.reruns) if view.reruns else None,
        table(columns, [Group(rows)], "Thresholds"),
    )


def _limit(limits: Thresholds, name: str) -> str:
    value = getattr(limits, name)
    return gap(value) if name.endswith("gap") else f"{value:g}"


def rollback(view: ReportView) -> Html:
    """How to take the plan off, and the proof that plain is plain again."""
    if view.rollback is None:
        return Html("")  # of supplied figures, whose page has no such section
    lines = [join(line, Html("\n")) for line in view.rollback.code.splitlines()]
    return join(
        paragraph(view.rollback.words),
        el("pre", el("code", lines)),
        el("h3", "Proof"),
        bullets(view.rollback.proofs),
    )


def environment(view: ReportView) -> Html:
    """What it was measured on, and the settings it was measured with."""
    known = sorted(view.environment, key=lambda key: (_place(key), key))
    settings = {"workload": view.workload, **view.settings}
    return join(
        facts((_name(key), _value(view.environment[key])) for key in known),
        el("h3", "Settings"),
        facts((_name(key), _value(value)) for key, value in settings.items() if value not in (None, {})),
    )


def _place(key: str) -> int:
    return _FIRST.index(key) if key in _FIRST else len(_FIRST)


def _name(key: str) -> str:
    return _NAMES.get(key, key.replace("_", " "))


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = [
            f"{_name(str(k))} {_value(v)}" for k, v in value.items() if v not in (None, (), [], {})
        ]
        return "; ".join(inside)
    if isinstance(value, list | tuple):
        return ", ".join(map(_value, value))
    if isinstance(value, bool):
        return "on" if value else "off"
    return "not known" if value is None else str(value)


_SOURCES = (
    Column("Class or function", code=True),
    Column("From"),
    Column("SHA-256 of its source", code=True),
)


def revisions(view: ReportView) -> Html:
    """Which code was run."""
    noted = view.main.reference.revisions if view.main.reference else None
    if noted is None:
        return paragraph("Which source the model was made of was not recorded.")
    commit = noted.git_commit or "none known"
    items = [
        ("model", noted.model),
        ("factory", noted.factory),
        ("commit of the model's source", commit + (", changed since" if noted.git_changed else "")),
    ]
    return join(
        facts((name, code(value)) for name, value in items if value),
        table(_SOURCES, [Group([_source(each) for each in noted.sources])], "Sources", "wide"),
        _elsewhere(view, noted),
    )


def _elsewhere(view: ReportView, noted: Revisions) -> Html | None:
    """Shapes at which other code ran, or which were run after a commit."""
    said = []
    for one in view.shapes:
        other = one.reference.revisions if one.reference is not None else None
        if other is not None and other != noted:
            same = other.model_copy(
                update={"git_commit": noted.git_commit, "git_changed": noted.git_changed}
            )
            what = f"the same sources, commit {other.git_commit}" if same == noted else "other sources"
            said.append(f"{one.shape_key}: {what}; see evidence/revisions.json.")
    return bullets(said) if said else None


def _source(each: SourceRevision) -> tuple[Html | str, ...]:
    installed = f"{each.library} {each.version or ''}".strip() if each.library else "not installed"
    name = join(each.name, el("small", each.file) if each.file else None)
    return name, installed, each.sha256 or f"none: {each.no_source or 'not known'}"


_DIGESTS = (Column("Digest of"), Column("SHA-256", code=True))
_FILES = (
    Column("File", code=True),
    Column("Size (bytes)", number=True),
    Column("SHA-256", code=True),
)


def digests(view: ReportView) -> Html:
    """What was fed in, what came out, and the files of evidence."""
    both = (("plan", view.plan_hash), ("specification", view.spec_hash))
    study = [(name, value) for name, value in both if value]
    tables = [table(_DIGESTS, [Group(study)], "Digests of the study", "wide")] if study else []
    for one in view.shapes:
        if one.reference is not None:
            tables.append(
                table(
                    _DIGESTS, [Group(_reference(one.reference))], f"Digests at {one.shape_key}", "wide"
                )
            )
    files = [(each.name, f"{each.size:,}", each.digest) for each in view.files]
    missing = [f"{name}: {why}" for name, why in view.not_recorded.items()]
    return join(
        tables,
        table(_FILES, [Group(files)], "Files of evidence", "wide") if files else None,
        join(paragraph("Not recorded:"), bullets(missing)) if missing else None,
    )


def _reference(kept: Reference) -> list[tuple[Html | str, ...]]:
    def row(name: str, detail: str, value: str | None) -> tuple[Html | str, ...]:
        return join(name, el("small", detail) if detail else None), value or "none: made from the seed"

    batch = "; ".join(
        f"{each.name}: {' × '.join(map(str, each.shape)) or 'scalar'} {each.dtype}"
        for each in kept.batch or ()
    )
    rows = [
        row("batch", batch, kept.batch_digest),
        row("data set", "", kept.data_digest),
        row(
            "plain's update",
            f"loss {kept.loss:.6g}, {count(kept.tensors, 'tensor')}, {kept.parameters:,} parameters",
            kept.digest,
        ),
    ]
    if kept.optimizer is not None:
        rows.append(row("optimizer's state", kept.optimizer.name, kept.optimizer.state_digest))
    return rows


def not_claimed(view: ReportView) -> Html:
    return bullets(view.not_claimed)
