"""From what a user typed to a specification: presets, YAML files, `--set` and `--sweep`. No torch."""

from pathlib import Path
from typing import Any

import yaml

from .errors import InputError
from .plans.names import first_blocks
from .spec import WORKLOADS, StudySpec, parse_spec, preset


def asked(
    preset_name: str | None, file: Path | None, settings: tuple[str, ...], sweeps: tuple[str, ...]
) -> StudySpec:
    """The specification that a command line asks for; raises InputError with one line."""
    if (preset_name is None) == (file is None):
        raise InputError("give either --preset NAME or a file SPEC.yaml")
    raw = preset(preset_name) if preset_name is not None else read_yaml(file or Path())
    origin = f"preset {preset_name}" if preset_name else str(file)
    for assignment in settings:
        assign(raw, assignment)
    for sweep in sweeps:
        _sweep(raw, sweep, origin)
    workload = raw.get("workload")
    if isinstance(workload, dict) and isinstance(workload.get("images"), str) and workload["images"]:
        try:
            workload["images"] = str(Path(workload["images"]).expanduser().absolute())
        except RuntimeError as error:
            raise InputError(f"{origin}: workload.images: {error}") from None
    return parse_spec(raw, origin)


def asked_workload(workload: str, settings: tuple[str, ...], plans: tuple[str, ...] = ()) -> StudySpec:
    """The specification of a command that is given a workload and `--set`; raises InputError."""
    raw: dict[str, Any] = {"workload": workload}
    for assignment in settings:
        assign(raw, assignment)
    return parse_spec(raw | ({"plans": list(plans)} if plans else {}), "the command line")


CHECK_SETTINGS = ("checkpoint", "precision", "seed", "device", "threads")
"""What of a specification a check of somebody's own model heeds."""


def asked_check(name: str, settings: tuple[str, ...]) -> StudySpec:
    """The specification of a check: a workload's of ours, or for another model what it heeds of one."""
    if name in WORKLOADS:
        return asked_workload(name, settings)
    raw: dict[str, Any] = {}
    for assignment in settings:
        assign(raw, assignment)
    strange = next((key for key in raw if key not in CHECK_SETTINGS), None)
    if strange is not None:
        raise InputError(
            f"--set {strange}: {name} takes {', '.join(CHECK_SETTINGS)}; settings of a model of hf: or "
            "timm: are in its name, ?setting=value"
        )
    return parse_spec(raw, "the command line")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    raw = _yaml(text, str(path))
    if not isinstance(raw, dict):
        raise InputError(
            f"{path}: expected a mapping of settings, got {type(raw).__name__}; "
            "an example is 'workload: gpt'"
        )
    return raw


def _yaml(text: str, where: str) -> Any:
    try:
        return yaml.safe_load(text)
    except RecursionError:
        raise InputError(f"{where}: nested too deeply") from None
    except (
        yaml.YAMLError,
        ValueError,
        LookupError,
        TypeError,
    ) as error:  # what tags such as !!int raise
        raise InputError(f"{where}: not YAML: {' '.join(str(error).split())[:200]}") from None


def assign(raw: dict[str, Any], assignment: str) -> None:
    """Apply one `path=value` to plain data; the value is YAML.

    A size of the workload that is set so is taken out of the shapes, which would override it.
    """
    path, equals, text = assignment.partition("=")
    parts = path.split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {assignment}: expected path=value, such as workload.seq_len=512")
    value = _yaml(text, f"--set {assignment}")
    inner = raw
    for part in parts[:-1]:
        below = inner.get(part, {})
        if part == "workload" and isinstance(below, str):
            below = {"name": below}
        if not isinstance(below, dict):
            raise InputError(f"--set {assignment}: {part} has no settings below it")
        inner[part] = inner = dict(below)
    inner[parts[-1]] = value
    if parts[0] == "workload" and len(parts) == 2:
        _drop_from_shapes(raw, parts[1])


def _drop_from_shapes(raw: dict[str, Any], size: str) -> None:
    shapes = raw.get("shapes")
    if not isinstance(shapes, list) or not any(isinstance(s, dict) and size in s for s in shapes):
        return
    kept: list[Any] = []
    for shape in shapes:
        left = {k: v for k, v in shape.items() if k != size} if isinstance(shape, dict) else shape
        if left not in kept:
            kept.append(left)
    raw["shapes"] = kept


def _sweep(raw: dict[str, Any], sweep: str, origin: str) -> None:
    """`blocks`: the selective curve. `size=a,b,c`: one shape for each value."""
    size, equals, text = sweep.partition("=")
    if sweep == "blocks":
        raw["plans"] = list(first_blocks(parse_spec(raw, origin).workload.blocks))
        raw.pop("custom_plans", None)
    elif equals and text:
        raw["shapes"] = [{size: _yaml(value, f"--sweep {sweep}")} for value in text.split(",")]
    else:
        raise InputError(
            f"--sweep {sweep}: expected blocks, or a size with its values, such as seq_len=128,256"
        )
