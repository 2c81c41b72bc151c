"""From what a user typed to a specification: presets, YAML files, `--set` and `--sweep`. No torch."""

from pathlib import Path
from typing import Any

from .errors import InputError
from .plain_yaml import MOST_LETTERS, parse_yaml
from .plans.anatomy import anatomy_of
from .plans.names import first_blocks
from .reading import read_at_most
from .settings import is_own
from .spec import StudySpec, parse_spec, preset
from .studies.looking import looked_up
from .workloads.registered import is_factory, resolve_any
from .writing import check_is_text


def asked(
    preset_name: str | None,
    file: Path | None,
    settings: tuple[str, ...],
    sweeps: tuple[str, ...],
    workload_name: str | None = None,
) -> StudySpec:
    """The specification that a command line asks for; raises InputError with one line."""
    if preset_name is not None and file is not None:
        raise InputError("give either --preset NAME or a file SPEC.yaml")
    if preset_name is None and file is None and workload_name is None:
        raise InputError("give --preset NAME, a file SPEC.yaml or --workload NAME")
    raw: dict[str, Any] = {}
    origin = "the command line"
    if file is not None and not file.exists() and (is_own(str(file)) or is_factory(str(file))):
        raise InputError(f"{file}: no such file; to study a model write --workload {file}")
    if file is not None:
        raw, origin = read_yaml(file), str(file)
    elif preset_name is not None:
        raw, origin = preset(preset_name), f"preset {preset_name}"
    if workload_name is not None:
        _another(raw, resolve_any(workload_name), preset_name is not None)
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
        check_is_text(workload["images"], "workload.images")
    return parse_spec(raw, origin)


def _another(raw: dict[str, Any], name: str, from_preset: bool) -> None:
    """Put another workload in; a preset's shapes are sizes of its own."""
    there = raw.get("workload")
    if (there.get("name", "gpt") if isinstance(there, dict) else there) == name:
        return
    raw["workload"] = name
    if from_preset:
        raw.pop("shapes", None)


def asked_workload(workload: str, settings: tuple[str, ...], plans: tuple[str, ...] = ()) -> StudySpec:
    """The specification of a command that is given a workload and `--set`; raises InputError."""
    raw: dict[str, Any] = {"workload": resolve_any(workload)}
    for assignment in settings:
        assign(raw, assignment)
    return parse_spec(raw | ({"plans": list(plans)} if plans else {}), "the command line")


def read_yaml(path: Path) -> dict[str, Any]:
    """A YAML mapping from a file."""
    most = 4 * MOST_LETTERS  # bytes: so many may one letter have
    data = read_at_most(path, most, f"more than {most} bytes; a specification has at most that")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a text file") from None
    raw = parse_yaml(text, str(path))
    if not isinstance(raw, dict):
        raise InputError(
            f"{path}: expected a mapping of settings, got {type(raw).__name__}; "
            "an example is 'workload: gpt'"
        )
    return raw


def assign(raw: dict[str, Any], assignment: str) -> None:
    """Apply one `path=value` to plain data; the value is YAML.

    A size of the workload that is set so is taken out of the shapes, which would override it.
    """
    path, equals, text = assignment.partition("=")
    parts = path.split(".")
    if not equals or not all(parts):
        raise InputError(f"--set {assignment}: expected path=value, such as workload.seq_len=512")
    value = parse_yaml(text, f"--set {assignment}")
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
        workload = looked_up(parse_spec(raw, origin)).workload
        raw["plans"] = list(first_blocks(anatomy_of(workload).blocks))
        raw.pop("custom_plans", None)
    elif equals and text:
        raw["shapes"] = [{size: parse_yaml(value, f"--sweep {sweep}")} for value in text.split(",")]
    else:
        raise InputError(
            f"--sweep {sweep}: expected blocks, or a size with its values, such as seq_len=128,256"
        )
