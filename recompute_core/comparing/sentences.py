"""What matters of a comparison, in sentences; figures as the tables show them."""

from collections.abc import Sequence

from ..gates import in_mb
from ..intervals import coverage
from ..plans.names import in_a_sentence
from ..results import StudyResult
from ..words import ENOUGH_PAIRS, count, listed, quotation
from .records import Change, Compared, Difference, FigureId, Pairing, Unpaired

VERDICT_WORDS = {"adopt": "adopt", "keep_original": "keep original", "undecided": "undecided"}
FIGURE_NAMES: dict[FigureId, str] = {
    "update_ratio": "update ratio",
    "update_s": "update time",
    "plain_update_s": "plain's update time",
    "peak_ratio": "peak ratio",
    "peak_bytes": "peak",
    "plain_peak_bytes": "plain's peak",
    "saved_bytes": "saved bytes",
}
_FACTS = {
    "device": "kind of device",
    "device_name": "processor",
    "threads": "number of threads",
    "torch": "torch version",
    "float32_matmul_precision": "precision of matrix products",
    "cpu_capability": "instruction set of the kernels",
    "cuda": "CUDA version",
    "tf32_matmul": "TF32 setting",
}
_LEADING: tuple[FigureId, ...] = ("update_ratio", "peak_bytes")


def sentences(
    a: Compared,
    b: Compared,
    facts: Sequence[Difference],
    pairings: Sequence[Pairing],
    unpaired: Sequence[Unpaired],
) -> tuple[str, ...]:
    """The verdicts where they differ, what moved most, and what was asked differently."""
    said: list[str] = []
    if a.study_id == b.study_id and a.kind == b.kind:
        said.append("A and B are the same study.")
    if a.verdict and b.verdict and a.verdict != b.verdict:
        said.append(
            f"The verdict is {VERDICT_WORDS[a.verdict]} in A and {VERDICT_WORDS[b.verdict]} in B."
        )
    said += _figures(pairings)
    asked = [_setting(one.name) for one in facts if one.asked]
    if asked:
        more = f" and {count(len(asked) - 4, 'more setting')}" if len(asked) > 5 else ""
        named = asked[:4] if more else asked
        said.append(f"Asked differently: {', '.join(named) if more else listed(named)}{more}.")
    if unpaired:
        alone = {side: sum(one.side == side for one in unpaired) for side in ("a", "b")}
        parts = [f"{count(n, 'candidate')} in {side.upper()} alone" for side, n in alone.items() if n]
        said.append(f"Not compared: {listed(parts)}.")
    return tuple(said)


def _setting(name: str) -> str:
    """A threshold by its gate, another setting's place; the name of a plan in it is foreign text."""
    if name in _GATES:
        return f"the threshold of the gate on {_GATES[name]}"
    return (
        f"the plan {quotation(plan)}" if (plan := name.removeprefix("custom_plans.")) != name else name
    )


_GATES = {
    "gradient_gap": "gradients (absolute gap)",
    "relative_gap": "gradients (relative gap)",
    "peak_ratio": "peak memory",
    "update_ratio": "update time",
}


def _figures(pairings: Sequence[Pairing]) -> list[str]:
    if not pairings:
        return ["No candidate is in both at the same shape."]
    if not any(one.changes for one in pairings):
        return ["No candidate has been measured in both."]
    moved = {figure: _moved(pairings, figure) for figure in _LEADING}
    if not any(moved.values()):
        compared = sum(bool(one.changes) for one in pairings)
        equal = ", and the peaks are equal to the byte" if _equal_peaks(pairings) else ""
        timed = "" if _has(pairings, "update_ratio") else "; no update time is in both"
        return [f"No difference beyond the intervals in {count(compared, 'candidate')}{equal}{timed}."]
    said = []
    for figure, found in moved.items():
        if found:
            said.append(f"{_moved_most(*found[0])}{_more(len(found) - 1, figure)}.")
        elif figure == "update_ratio" and _has(pairings, figure):
            said.append("No update ratio differs beyond its interval.")
        elif figure == "peak_bytes" and _equal_peaks(pairings):
            said.append("The peaks are equal to the byte.")
    return said


def _moved(pairings: Sequence[Pairing], figure: FigureId) -> list[tuple[Pairing, Change]]:
    """The candidates whose figure differs beyond its interval, the largest share first."""
    found = [(one, change) for one in pairings if (change := one.change(figure)) and change.beyond]
    return sorted(found, key=lambda pair: -abs(pair[1].relative))


def _has(pairings: Sequence[Pairing], figure: FigureId) -> bool:
    return any(one.change(figure) for one in pairings)


def _equal_peaks(pairings: Sequence[Pairing]) -> bool:
    peaks = [change for one in pairings if (change := one.change("peak_bytes"))]
    return bool(peaks) and all(change.difference == 0 for change in peaks)


def _moved_most(one: Pairing, change: Change) -> str:
    name = FIGURE_NAMES[change.figure]
    what = f"{name[0].upper()}{name[1:]} of {in_a_sentence(one.plan)} at {one.shape_key}"
    step = "rose" if change.difference > 0 else "fell"
    if change.unit == "ratio":
        places = _places(change)
        low, high = change.interval or (change.difference, change.difference)
        return (
            f"{what} {step} from {change.a:.{places}f} to {change.b:.{places}f} "
            f"({low:+.{places}f} to {high:+.{places}f})"
        )
    return (
        f"{what} {step} from {in_mb(change.a)} MB to {in_mb(change.b)} MB ({percent(change.relative)})"
    )


def _more(number: int, figure: FigureId) -> str:
    if not number:
        return ""
    one, several = ("peak", "peaks") if figure == "peak_bytes" else ("update ratio", "update ratios")
    beyond = "differ" if figure == "peak_bytes" else "moved beyond their intervals"
    if number == 1:
        beyond = beyond.replace("differ", "differs").replace("their intervals", "its interval")
    return f"; {count(number, f'more {one}', f'more {several}')} {beyond}"


def _places(change: Change) -> int:
    """As few decimals as still tell the two figures, and the edges of the interval from 0."""
    for places in (2, 3):
        edges = [edge for edge in change.interval or () if edge]
        if round(change.a, places) != round(change.b, places) and all(round(e, places) for e in edges):
            return places
    return 4


def percent(share: float) -> str:
    """`+5.6 %`; more digits for what is small."""
    places = 1 if abs(share) >= 0.001 or not share else 3
    return f"{100 * share:+.{places}f} %"


def intervals_sentence(pairings: Sequence[Pairing]) -> str:
    """What the intervals of the differences are made of, and what they can cover at best."""
    pairs = [change.pairs for one in pairings for change in one.changes if change.pairs]
    fewest = min(pairs, default=ENOUGH_PAIRS)
    less = (
        f" A median of {count(fewest, 'pair')}, as here, has an interval that covers "
        f"{100 * coverage(fewest):.3g} %, and a difference is promised no more."
        if fewest < ENOUGH_PAIRS
        else ""
    )
    return (
        "Intervals of differences in update times are made of both medians' bootstrap distributions, "
        f"which are independent, and aim at 95 %.{less}"
    )


# --- cautions ----------------------------------------------------------------------------------------


def cautions(
    a: StudyResult, b: StudyResult, apart: Sequence[str], pairings: Sequence[Pairing]
) -> tuple[str, ...]:
    """Why seconds are not compared, and where the two did not do the same work."""
    said = []
    if "environment" in apart:
        said.append("Where one of them ran is not known, so seconds are not compared; ratios are.")
    elif apart:
        facts = [f"{_FACTS[fact]} ({_fact(a, fact)} in A, {_fact(b, fact)} in B)" for fact in apart]
        said.append(f"Not the same {listed(facts)}: seconds are not compared, ratios are.")
    if _work(a) != _work(b):
        said.append(
            "Not the same work: model, precision, optimizer, compiler, ranks or recomputation differ, "
            "so a figure that moved need not be another cost of the same thing."
        )
    if a.spec.engine != b.spec.engine:
        engines = f"{a.spec.engine} in A, {b.spec.engine} in B"
        said.append(
            f"Not the same engine ({engines}): the cells of a cluster are measured on its nodes, so a "
            "figure that moved may be another machine's."
        )
    if a.thresholds != b.thresholds:
        said.append("The thresholds differ, so each verdict is of other gates.")
    others = [one for one in pairings if not one.same_plan]
    if others:
        first = f"{in_a_sentence(others[0].plan)} at {others[0].shape_key}"
        more = f" and {count(len(others) - 1, 'more')}" if len(others) > 1 else ""
        said.append(f"Another plan under the same name: {first}{more}.")
    for side, result in (("A", a), ("B", b)):
        if result.status != "done":
            said.append(f"{side} is not complete: {result.status}.")
    return tuple(said)


def _fact(result: StudyResult, fact: str) -> str:
    value = result.environment.get(fact)
    if value is None:
        return "not known"
    return quotation(value) if isinstance(value, str) else str(value)


def _work(result: StudyResult) -> object:
    spec = result.spec
    return spec.workload.name, spec.model_dump(
        include={"workload", "precision", "optimizer", "checkpoint", "compile", "ranks", "seed"},
        exclude={"workload": {"seq_len", "batch", "height", "image_width", "anatomy"}},
    )
