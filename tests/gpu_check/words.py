"""What was found, as Markdown: one table a part. Pure."""

from collections.abc import Iterable
from typing import Any

from recompute_core.gates import megabytes

MISSING = "not measured"


def markdown(whole: dict[str, Any]) -> str:
    """The whole result; a part that failed says why above what it had found."""
    lines = ["# GPU check", ""]
    if whole["note"]:
        lines += [f"**{whole['note'][0].upper()}{whole['note'][1:]}.** It shows that the parts run.", ""]
    lines += [
        f"{whole['sentence']}. Started {whole['started_at']}, {whole['seconds']:.0f} s so far.",
        "",
    ]
    for part in whole["parts"]:
        lines += [f"## {part['title']}", ""]
        if part["reason"]:
            lines += [f"**Failed:** {_cell(part['reason'])}", ""]
        lines += [*_SAID[part["name"]](part["found"]), f"Took {part['seconds']:.0f} s.", ""]
    return "\n".join(lines)


def _machine(found: dict[str, Any]) -> list[str]:
    facts = {**found.get("environment", {}), **{k: v for k, v in found.items() if k != "environment"}}
    return _table(("fact", "value"), facts.items())


def _parity(found: dict[str, Any]) -> list[str]:
    return _table(
        ("workload", "precision", "plan", "passed", "bitwise", "largest gap", "plain against itself",
         "off again"),
        (
            (
                row["workload"], row["precision"], row["plan"],
                "yes" if row["passed"] else f"NO {row.get('problem', '')}".strip(),
                _yes(row.get("bitwise")), _gap(row.get("largest_relative_gap")),
                _gap(row["noise_floor"]), _yes(row.get("back_to_plain")),
            )
            for row in found.get("rows", ())
        ),
    )  # fmt: skip


def _memory(found: dict[str, Any]) -> list[str]:
    return _table(
        ("shape", "plan", "phase", "state", "reason"),
        (
            (one["shape"], one["plan"], one["phase"], one["state"], one["reason"] or "")
            for one in found.get("cells", ())
        ),
    )


def _estimates(found: dict[str, Any]) -> list[str]:
    return _table(
        ("precision", "plan", "estimated peak", "measured", "error", "above the state",
         "saved: estimated", "measured"),
        (
            (
                row["precision"], row["plan"], _mb(row["estimated_peak_bytes"]), _mb(row["peak_bytes"]),
                _percent(row["error"]), _percent(row["error_above_state"]),
                _mb(row["estimated_saved_bytes"]), _mb(row["saved_bytes"]),
            )
            for row in found.get("rows", ())
        ),
    )  # fmt: skip


def _over_lengths(found: dict[str, Any]) -> list[str]:
    rows = found.get("rows", ())
    sides = [
        (row["shape"], name, row[side])
        for row in rows
        for side, name in (("plain", "plain"), ("candidate", "every block"))
    ]
    lines = _table(
        ("shape", "plan", "saved", "by the CPU's kernels", "peak", "reserved",
         "process, after the updates", "peak sits in", "timeline"),
        (
            (
                shape, name, _mb(one["saved_bytes"]), _mb(one["cpu_saved_bytes"]),
                _mb(one["peak_bytes"]),
                _mb(one["peak_reserved_bytes"]), _mb(one["process_peak_bytes"]),
                one["peak_at"] or MISSING, _mb(one["timeline_peak_bytes"]),
            )
            for shape, name, one in sides
        ),
    )  # fmt: skip
    lines += _table(
        ("shape", "bitwise", "peak ratio", "plain's update", "every block over plain"),
        (
            (
                row["shape"], _yes(row["bitwise"]), _number(row["peak_ratio"]),
                _ms(row["plain_median_s"]), _interval(row["update_ratio"], row["update_ratio_ci95"]),
            )
            for row in rows
        ),
    )  # fmt: skip
    return lines + _reasons(one for _, _, one in sides) + [*_sources(rows)]


def _facts(found: dict[str, Any]) -> list[str]:
    return _table(("what", "is"), ((name, found[name]) for name in found))


def _frontier(found: dict[str, Any]) -> list[str]:
    if not found:
        return []
    lines = [
        f"{found['parameters'] / 1e9:.2f} billion parameters, planned in {found['planned_in_s']:.0f} s "
        f"on the CPU's kernels. {found['sentence']}",
        "",
    ]
    header = (
        "plan",
        "estimated peak",
        "measured",
        "error",
        "estimated overhead",
        "update over plain",
        "parity",
    )
    for title, points in (("Measured", found.get("measured", ())), ("Planned", found["points"])):
        lines += [f"{title}:", "", *_table(header, map(_planned, points))]
    return lines + _reasons(
        side for one in found.get("costs", ()) for side in (one["plain"], one["candidate"])
    )


def _planned(one: dict[str, Any]) -> tuple[Any, ...]:
    return (
        one["plan"], _mb(one["estimated_peak_bytes"]), _mb(one["measured_peak_bytes"]),
        _percent(one["peak_error"]), _percent(one["estimated_overhead"]),
        _interval(one["measured_ratio"], one["measured_ratio_ci95"]), one["parity"] or MISSING,
    )  # fmt: skip


_SAID = {
    "machine": _machine,
    "parity": _parity,
    "memory": _memory,
    "estimates": _estimates,
    "table": _over_lengths,
    "decision": _facts,
    "compiled": _facts,
    "ranks": _facts,
    "frontier": _frontier,
}


def _table(header: tuple[str, ...], rows: Iterable[Iterable[Any]]) -> list[str]:
    lines = [f"| {' | '.join(map(_cell, row))} |" for row in rows]
    if not lines:
        return []
    return [f"| {' | '.join(header)} |", "|" + "---|" * len(header), *lines, ""]


def _cell(value: Any) -> str:
    return " ".join(str(value).split()).replace("|", "\\|")


def _reasons(found: Iterable[dict[str, Any]]) -> list[str]:
    """Why figures are missing, each reason once."""
    said = {f"{name}: {why}" for one in found for name, why in one["not_measured"].items()}
    return [f"- {_cell(line)}" for line in sorted(said)] + ([""] if said else [])


def _sources(rows: Iterable[dict[str, Any]]) -> Iterable[str]:
    said = {row["plain"]["source"] for row in rows} | {row["time_source"] for row in rows}
    if said:
        yield f"Meters: {'; '.join(sorted(filter(None, said)))}."
        yield ""


def _mb(count: int | None) -> str:
    return MISSING if count is None else megabytes(count)


def _ms(seconds: float | None) -> str:
    return MISSING if seconds is None else f"{seconds * 1e3:.2f} ms"


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.3f}"


def _percent(share: float | None) -> str:
    return MISSING if share is None else f"{100 * share:+.2f} %"


def _interval(value: float | None, around: tuple[float, float] | None) -> str:
    if value is None or around is None:
        return _number(value)
    return f"{value:.3f} ({around[0]:.3f} to {around[1]:.3f})"


def _gap(value: float | None) -> str:
    return MISSING if value is None else f"{value:.2g}"


def _yes(value: bool | None) -> str:
    return MISSING if value is None else ("yes" if value else "no")
