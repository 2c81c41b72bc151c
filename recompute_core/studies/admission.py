"""May this study start? What can be known before torch is loaded is checked here, in one line each."""

from pathlib import Path

import psutil

from ..compiled.cache import check_compiler
from ..errors import InputError
from ..gates import megabytes
from ..plans.anatomy import anatomy_of
from ..plans.custom import check_custom_plans
from ..plans.names import regions_of
from ..ranks.admission import check_ranks, held_bytes
from ..settings import ReceiptsSettings, shape_key
from ..spec import StudySpec
from ..workloads.sizes import sizes_of
from ..writing import check_is_text
from .device_there import check_device
from .engines import check_engine
from .looking import looked_up


def admit(spec: StudySpec, home: Path) -> StudySpec:
    """The specification as it will run, with the anatomy of somebody's own model.

    Raises InputError when a plan cannot run, a shape is beyond memory, the device is not here, or
    photos are unusable.
    """
    check_is_text(home, "RECOMPUTE_HOME")
    check_engine(spec)
    spec = looked_up(spec)
    check_custom_plans(spec)
    for index, plan in enumerate(spec.plans):
        try:
            regions_of(spec, plan)
        except InputError as error:
            raise InputError(f"plans[{index}]: {error}") from None
    check_ranks(spec)
    check_memory(spec)
    check_device(spec)
    if spec.compile is not None:
        check_compiler(spec.compile.backend)
    if isinstance(spec.workload, ReceiptsSettings) and spec.workload.images is not None:
        from ..workloads.receipts.manifest import check_images

        try:
            there = check_images(Path(spec.workload.images)).train
        except OSError as error:
            raise InputError(f"workload.images: cannot be read: {error.strerror}") from None
        for index, shape in enumerate(spec.shapes):
            if (batch := spec.at(shape).batch or 0) > there:
                raise InputError(
                    f"shapes[{index}]: batch {batch} is larger than the {there} accepted photos of the "
                    "training split"
                )
    return spec


def _plain_bytes(spec: StudySpec, shape: dict[str, int]) -> int:
    """What plain needs at a shape, in all of its processes.

    Of somebody's own model only its state is known: parameters, gradients and AdamW's moments, in the
    precision that is asked for; a factory may bring an optimizer without moments.
    """
    sizes = sizes_of(spec.at(shape), spec.precision)
    if sizes is not None:
        parameters = sizes.element_bytes * sizes.parameters
        state, activations = sizes.state_bytes, sizes.saved_bytes
    else:
        each = 2 if spec.workload.name.startswith("own:") else 4
        parameters = anatomy_of(spec.workload).parameters * (4 if spec.precision == "float32" else 2)
        state, activations = each * parameters, 0
    if spec.ranks is None:
        return state + activations
    return held_bytes(spec.ranks, parameters, state, activations)


def check_memory(spec: StudySpec) -> None:
    """Raises InputError when plain at some shape needs more memory than this machine has."""
    if spec.device not in ("auto", "cpu") or spec.engine != "local":
        return  # an accelerator's memory is known only where torch is loaded, a node's only there
    there = psutil.virtual_memory().total
    over = f" over {spec.ranks.count} ranks ({spec.ranks.kind})" if spec.ranks else ""
    for index, shape in enumerate(spec.shapes):
        needed = _plain_bytes(spec, shape)
        if needed > there:
            raise InputError(
                f"shapes[{index}] ({shape_key(spec.at(shape))}): plain{over} needs about "
                f"{megabytes(needed)} and this machine has {megabytes(there)}; choose a smaller one"
            )
