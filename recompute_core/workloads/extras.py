"""Libraries that build models for us, each an optional extra of `requirements-models.txt`.

A name may come with somebody's report: what it builds asks no hub and reads no file.
"""

import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError

_VISION_OPS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_ATTENTION = ("eager", "sdpa", "flex_attention", "flash_attention_2")
"""Implementations that are in the library; any other name would be fetched from a hub."""
_LOADS = ("auto_map", "trust_remote_code")
_declared: list[torch.library.Library] = []


def import_extra(library: str, asked: str) -> Any:
    """The library; raises InputError with the command that installs it when it is missing."""
    if importlib.util.find_spec(library) is None:
        raise InputError(
            f"{asked}: needs {library}, which is not installed: pip install -r requirements-models.txt"
        )
    _stay_offline()
    try:
        declare_vision_ops()
        return importlib.import_module(library)
    except Exception as error:
        text = " ".join(str(error).split())[:200]
        raise InputError(
            f"{asked}: {library} cannot be imported: {type(error).__name__}: {text}"
        ) from None


def _stay_offline() -> None:
    """From now on this process and those it starts ask no hub, whatever a configuration says."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"
    constants: Any = sys.modules.get("huggingface_hub.constants")
    if constants is not None:  # imported before, it has read the variables already
        constants.HF_HUB_OFFLINE = True


def check_nothing_fetched(name: str, settings: Any) -> None:
    """Raises InputError for a setting, however deep it is set, that names a place to load from."""
    if isinstance(settings, str) and ":" in settings:
        raise InputError(f"{name}: {settings[:60]!r} names a place; nothing is loaded from anywhere")
    if isinstance(settings, list | tuple | set):
        for value in settings:
            check_nothing_fetched(name, value)
    for key, value in settings.items() if isinstance(settings, dict) else ():
        if str(key).startswith("_"):
            raise InputError(f"{name}: {key}: is no setting of a model")
        if key in _LOADS or ("pretrained" in str(key) and value):
            raise InputError(f"{name}: {key}: weights are random, nothing is loaded")
        if str(key).endswith("_implementation") and value not in _ATTENTION:
            raise InputError(f"{name}: {key}: expected one of {', '.join(_ATTENTION)}")
        check_nothing_fetched(name, value)


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
