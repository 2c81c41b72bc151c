"""May a plan that is given as data run? Checks what can be known without the model. No torch."""

from collections import defaultdict
from itertools import accumulate

from ..errors import InputError
from ..settings import Anatomy
from ..spec import Region, StudySpec
from .anatomy import anatomy_of
from .names import is_taken


def check_custom_plans(spec: StudySpec) -> None:
    """Raises InputError for a custom plan that is unused, misnamed, empty, outside the blocks or of
    modules that the workload lacks. Whether torch has an op to keep is known only where torch is."""
    anatomy = anatomy_of(spec.workload)
    for name, regions in spec.custom_plans.items():
        try:
            if is_taken(name):
                raise InputError("a named plan is called that already; choose another name")
            if name not in spec.plans:
                raise InputError("plans does not name it; add it there or leave it out")
            if not regions:
                raise InputError("recomputes nothing; give it a region such as {modules: [blocks.0]}")
            for region in regions:
                _check_region(region, anatomy)
            _check_order(regions)
        except InputError as error:
            raise InputError(f"custom_plans.{name}: {error}") from None


def _check_region(region: Region, anatomy: Anatomy) -> None:
    blocks = anatomy.names
    for module in region.modules:
        if _path(module).isdisjoint((*anatomy.outside, *blocks)):
            raise InputError(
                f"{module[:60]!r} is not in a block; the blocks are {blocks[0]} to {blocks[-1]}"
            )
        if not anatomy.has(module):
            parts = ", ".join(anatomy.parts or (*anatomy.matmuls, *anatomy.others))
            raise InputError(f"no module {module[:60]!r}; the parts of a block are {parts}")
    if len(region.modules) > 1:
        first = blocks.index(region.modules[0]) if region.modules[0] in blocks else len(blocks)
        if region.modules != blocks[first : first + len(region.modules)]:
            raise InputError(
                f"{region.modules[0][:60]} and {region.modules[1][:60]} cannot be recomputed as one; "
                "modules of one region must be whole blocks that follow each other"
            )


def _check_order(regions: tuple[Region, ...]) -> None:
    """Of two regions that meet, the later must lie within the earlier, and not be the very same."""
    at, inside = defaultdict[str, set[int]](set), defaultdict[str, set[int]](set)
    for number, later in enumerate(regions):
        paths = [(module, _path(module)) for module in later.modules]
        meeting = {one for module, path in paths for each in path for one in at[each]}
        meeting |= {one for module, _ in paths for one in inside[module]}
        for earlier in (regions[one] for one in sorted(meeting)):
            around = set(earlier.modules)
            if later.modules == earlier.modules or any(path.isdisjoint(around) for _, path in paths):
                raise InputError(
                    f"{_named(later)} and {_named(earlier)} meet; give outer regions before those "
                    "inside them, and each once"
                )
        for module, path in paths:
            at[module].add(number)
            for each in path:
                inside[each].add(number)


def _path(module: str) -> set[str]:
    """The module and those that it lies in."""
    return set(accumulate(module.split("."), "{}.{}".format))


def _named(region: Region) -> str:
    return " to ".join(dict.fromkeys(m[:60] for m in (region.modules[0], region.modules[-1])))
