"""Libraries that build models for us, each an optional extra of `requirements-models.txt`."""

import importlib
import importlib.util
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError

_VISION_OPS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_declared: list[torch.library.Library] = []


def import_extra(library: str, asked: str) -> Any:
    """The library; raises InputError with the command that installs it when it is missing."""
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{asked}: needs {library}, which is not installed: pip install -r requirements-models.txt"
        )
    try:
        declare_vision_ops()
        return importlib.import_module(library)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(
            f"{asked}: {library} cannot be imported: {type(error).__name__}: {text}"
        ) from None


def declare_vision_ops() -> None:
    """Let a torchvision be imported whose compiled part was built for another torch.

    PyPI's is built for CUDA: beside a CPU build of torch its operators do not load, and its import then
    fails where it adds to two of them by name. Models use neither, so it is enough that they exist.
    """
    there = importlib.util.find_spec("torchvision")
    if there is None or there.origin is None or _declared:
        return
    compiled = Path(there.origin).parent.glob("_C*.so")
    try:
        torch.ops.load_library(next(compiled))  # type: ignore[no-untyped-call]
    except OSError:
        library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
        for op in _VISION_OPS:
            library.define(op)
        _declared.append(library)  # its ops go with it
    except StopIteration:  # another build, with no such part
        return
