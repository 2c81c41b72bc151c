"""Words and formats that terminal, pages and report share: one name for one thing. No torch."""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from .errors import printable as printable
from .intervals import Interval, coverage
from .results import Outcome, Timing
from .spec import Ranks, StudySpec

OUTCOMES: dict[Outcome, str] = {
    "pass": "pass",
    "fail": "fail",
    "undecided": "undecided",
    "not_run": "not run",
}
POINT_MEANINGS: dict[Outcome, str] = {
    "pass": "passes every gate",
    "fail": "fails a gate",
    "undecided": "undecided",
}
"""What the mark of a candidate in the picture says."""
MB_NOTE = "MB is 10⁶ bytes."
ENOUGH_PAIRS = 6
"""The fewest whose interval covers 95 %."""
_INTERVAL_NOTE = (
    "Intervals of update times are of the median of the paired ratios, by the sign test: from six pairs "
    "on they cover at least 95 %, whatever the noise."
)


def sentence_case(text: str) -> str:
    """First letter upper, the rest as it is."""
    return text[:1].upper() + text[1:]


def count(number: int, one: str, many: str | None = None) -> str:
    """`1 study`, `3 studies`."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def interval_name(pairs: int) -> str:
    """`95 % interval`, or what so few pairs' interval covers: `75 % interval` of three."""
    return f"{min(95.0, 100 * coverage(pairs)):.3g} % interval"


def interval_words(interval: Interval, pairs: int) -> str:
    """`1.21 to 1.30`; of pairs too few for 95 % also what it covers, since a verdict rests on it."""
    low, high = interval
    covers = f", the {interval_name(pairs)} of {count(pairs, 'pair')}" if pairs < ENOUGH_PAIRS else ""
    return f"{low:.2f} to {high:.2f}{covers}"


def fewest_pairs(timings: Iterable[Timing | None]) -> int:
    """Of those that were timed: what is said of all their intervals must hold of the poorest."""
    return min((one.pairs for one in timings if one is not None), default=ENOUGH_PAIRS)


def interval_note(fewest: int = ENOUGH_PAIRS) -> str:
    """What intervals of update times are, and cover where the poorest is of so many pairs."""
    less = (
        f" Of {count(fewest, 'pair')}, as here, they cover {100 * coverage(fewest):.3g} %."
        if fewest < ENOUGH_PAIRS
        else ""
    )
    return f"{_INTERVAL_NOTE}{less}"


def pairs_words(timing: Timing) -> str:
    """`9 pairs`; with too few for a 95 % interval also what theirs covers."""
    said, covered = count(timing.pairs, "pair"), coverage(timing.pairs)
    return said if covered >= 0.95 else f"{said} (their interval covers {100 * covered:.3g} %)"


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return " and ".join(filter(None, (", ".join(words[:-1]), *words[-1:])))


def duration(seconds: float) -> str:
    """`119 s`, then `2 min` to `119 min`, then `2 h 20 min`: each unit where the one before it ends, so
    that no clock jumps."""
    if round(seconds) < 120:
        return f"{max(1, round(seconds))} s"
    minutes = round(seconds / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def scientific(value: float) -> str:
    """`1e-4`, `2.8e-7`: two digits, without zeros that say nothing."""
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa.removesuffix('.0')}e{int(exponent)}"


def shape_labels(keys: Sequence[str]) -> dict[str, str]:
    """Shape keys without the sizes that all of them share: `T=128`, `T=256` of one batch."""
    parts = [key.split(" ") for key in keys]
    if len(parts) < 2 or len({len(part) for part in parts}) > 1:
        return {key: key for key in keys}
    varying = [i for i in range(len(parts[0])) if len({part[i] for part in parts}) > 1]
    return {
        key: " ".join(part[i] for i in varying) or key for key, part in zip(keys, parts, strict=True)
    }


def ranks_words(ranks: int, kind: object) -> str:
    """`2 ranks (ddp) that share the batch`: the batch of a study is that of all its ranks together."""
    return f"{count(ranks, 'rank')} ({kind}) that share the batch"


def compiled_words(backend: str) -> str:
    """`compiled by inductor`: of a study whose plain and candidates run under `torch.compile`."""
    return f"compiled by {backend}"


def with_training(workload: str, spec: StudySpec) -> str:
    """A workload's name in a list of studies: `gpt`, `gpt, ddp ×2`, `gpt, inductor`, `gpt, Ray`."""
    ranks, compiled = spec.ranks, spec.compile
    parts = (
        workload,
        f"{ranks.kind} ×{ranks.count}" if ranks else "",
        compiled.backend if compiled else "",
        "Ray" if spec.engine == "ray" else "",
    )
    return ", ".join(filter(None, parts))


WHOSE_FIGURES = "MB are of the rank with the highest peak, times of the slowest rank"
"""Of a study over ranks."""


def noise_words(ranks: int) -> str:
    """What is compared where noise is looked at."""
    return f"plain over {ranks} ranks against one process" if ranks > 1 else "plain against plain"


def noise_found(ranks: Ranks | None) -> str:
    """That more noise was found than the thresholds allow."""
    if ranks is None:
        return "plain differs from plain on this device"
    return f"plain over {ranks.count} ranks ({ranks.kind}) is not what one process computes"


def in_utc(moment: str) -> datetime:
    """A moment from ISO 8601, in UTC whatever its offset; without one it is UTC. Raises ValueError."""
    found = datetime.fromisoformat(moment)
    try:
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except OverflowError:  # at either end of time
        raise ValueError(f"no time: {moment[:40]}") from None


def utc_moment(moment: str) -> datetime:
    """A moment that is written in UTC and says so, as we write it. Raises ValueError for any other."""
    found = datetime.fromisoformat(moment)
    if found.utcoffset() != timedelta(0):
        raise ValueError(f"no time in UTC: {moment[:40]}")
    return found


def quotation(text: str) -> str:
    """A foreign name for a sentence of ours: in quotation marks, which it cannot close, and cut."""
    said = printable(" ".join(text.split())).replace("“", "'").replace("”", "'")
    return f"“{said if len(said) <= 60 else said[:59] + '…'}”"
