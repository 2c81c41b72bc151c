"""How long a study takes here, said before it is launched."""

from recompute_core.spec import StudySpec, parse_spec, preset
from recompute_core.studies.forecast import forecast

from .data import get_store, speed
from .words import duration


def promised(spec: StudySpec) -> str:
    """`about 40 s when nothing else runs here (estimated)`; without the unit of nothing measured."""
    seconds = forecast(spec, speed(get_store(), spec.workload.name)).seconds
    if not seconds:
        return "a minute or so"
    return f"about {duration(seconds)} when nothing else runs here (estimated)"


def quick_promised() -> str:
    """That of the quick study, in a sentence."""
    return f"The quick study takes {promised(parse_spec(preset('quick')))}."
