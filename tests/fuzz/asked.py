"""What is asked of the product: specifications, `--set`, names of models and plans."""

import random
from pathlib import Path
from typing import Any
from unittest import mock

import yaml
from hypothesis import strategies as st

from recompute_core import asking
from recompute_core.errors import InputError
from recompute_core.spec import PRESETS, StudySpec, parse_spec
from recompute_core.studies import admission
from recompute_core.studies.store import Store
from recompute_core.words import printable
from recompute_core.workloads import registered

from .inputs import as_json, mutated, mutated_bytes, texts, values
from .run import Kind

SPEC: dict[str, Any] = {
    "workload": {"name": "gpt", "width": 64, "heads": 4, "batch": 2},
    "shapes": [{"seq_len": 32}, {"seq_len": 64, "batch": 4}],
    "plans": ["every-block", "blocks:0,2", "mine"],
    "custom_plans": {
        "mine": [
            {"modules": ["blocks.0", "blocks.1"]},
            {"modules": ["blocks.0.attn"], "keep": ["aten.mm.default:0,2"]},
        ]
    },
    "thresholds": {"peak_ratio": 0.82, "update_ratio": 1.35},
    "checkpoint": {"variant": "call", "early_stop": True, "rng": "preserve"},
    "timing": {"min_pairs": 7, "max_pairs": 9, "width": 0.04, "budget_s": 3},
    "optimizer": {"lr": 1e-3, "weight_decay": 0.01},
    "precision": "float32",
    "seed": 0,
    "device": "cpu",
    "threads": 1,
    "ranks": {"kind": "ddp", "count": 2},
    "follows": [{"study": "20261129-163455-3f9c", "thresholds": {"peak_ratio": 0.9}}],
}
RECEIPTS: dict[str, Any] = {
    "workload": {"name": "receipts", "norm": "batch", "dropout": 0.1, "images": "photos"},
    "shapes": [{"height": 64, "image_width": 32}],
}
OWN: dict[str, Any] = {
    "workload": {"name": "hf:LlamaConfig?hidden_size=64&seq_len=32", "blocks": ["model.layers.0"]},
    "plans": ["norms"],
    "compile": {"backend": "aot_eager"},
}
FRAGMENTS = (
    "&a [*a]",
    "&a {b: *a}",
    "*a",
    "&a [x, x]",
    "[*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]",
    "{<<: *a}",
    "{<<: [*a, *a]}",
    "<<: 1",
    "!!timestamp foo",
    "!!timestamp 2020-99-99",
    "9999-12-31T23:59:59-23:59",
    "0001-01-01T00:00:00+23:59",
    "2020-99-99",
    "!!int ''",
    "!!int x",
    "!!float x",
    "!!bool x",
    "!!null x",
    "!!binary €",
    "!!set {a, b}",
    "!!omap [a: 1]",
    "!!pairs [a: 1]",
    "!!str [a]",
    "!!map x",
    "!!seq {a: 1}",
    "!!python/object/apply:os.system ['touch ../owned']",
    "!!python/name:os.system",
    "!unknown x",
    "!<tag:yaml.org,2002:python/object:os.system> x",
    "1:99:99:99",
    "0o17",
    "0b11",
    ".inf",
    ".NaN",
    '"\\ud800"',
    '"\\0"',
    '"\\U0010ffff"',
    '"\\x85"',
    "? {a: 1}",
    "? [a]",
    "=",
    "- - - - a",
    "| \n  a",
    "[" * 400,
    "{a: " * 400,
    "9" * 5000,
    "%YAML 9.9",
    "---",
    "...",
    "\ufeff",
    "# c",
)


def _bomb(width: int, depth: int, merges: bool) -> str:
    """Each line names the one before it many times: width to the power of depth values."""
    first = "{x0: 1, x1: 2}" if merges else "[x, x]"
    lines = [f"a0: &a0 {first}"]
    for level in range(1, depth + 1):
        names = ", ".join([f"*a{level - 1}"] * width)
        lines.append(f"a{level}: &a{level} " + (f"{{<<: [{names}]}}" if merges else f"[{names}]"))
    return "\n".join([*lines, f"plans: *a{depth}", "seed: *a1", ""])


def _written(document: Any) -> bytes:
    try:
        return yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass")
    except (yaml.YAMLError, ValueError, RecursionError):
        return as_json(document)


def specifications() -> st.SearchStrategy[bytes]:
    documents = st.one_of(mutated(lambda: SPEC), mutated(lambda: RECEIPTS), mutated(lambda: OWN))
    lines = st.lists(
        st.tuples(
            st.sampled_from((*SPEC, "workload", "a", "? ", "- ")),
            st.sampled_from((": ", ": &a ", ":", " ")),
            st.one_of(st.sampled_from(FRAGMENTS), texts),
        ).map("".join),
        max_size=6,
    ).map(lambda found: "\n".join(found).encode("utf-8", "surrogatepass"))
    tokens = tuple(one.encode("utf-8", "surrogatepass") for one in FRAGMENTS)
    bombs = st.builds(_bomb, st.integers(2, 12), st.integers(2, 30), st.booleans()).map(str.encode)
    encodings = st.sampled_from(("utf-16", "utf-16-le", "utf-32", "latin-1", "utf-8-sig"))
    return st.one_of(
        documents.map(_written),
        documents.map(_written),
        mutated_bytes(lambda: _written(SPEC), tokens),
        lines,
        bombs,
        encodings.map(lambda name: "plans: [é]\n".encode(name)),
        st.binary(max_size=40),
    )


def _not_looked(spec: StudySpec) -> StudySpec:
    """In the place of a process that loads torch and builds somebody's model."""
    workload = spec.workload
    if workload.name.partition(":")[0] in ("hf", "timm"):
        registered.settings_of(workload.name)
        raise InputError("a model that is not built here")
    if workload.name.startswith("own:"):
        registered.factory_path(workload.name)
        raise InputError("a model that is not built here")
    return spec


def admitted(spec: StudySpec, folder: Path) -> list[str]:
    """What happens to a specification before a study of it begins; it is written and read again."""
    with (
        mock.patch.object(admission, "looked_up", _not_looked),
        mock.patch.object(admission, "check_compiler"),
    ):
        spec = admission.admit(spec, folder)
    store = Store(folder / "home")
    try:
        again = store.study(store.create(spec)).spec
    finally:
        store.close()
    assert again == spec and again.digest() == spec.digest(), "a specification comes back as it went"
    return []


def _read_specification(data: bytes, folder: Path) -> list[str]:
    (folder / "spec.yaml").write_bytes(data)
    return admitted(asking.asked(None, Path("spec.yaml"), (), ()), folder)


def _read_structure(raw: Any, folder: Path) -> list[str]:
    return admitted(parse_spec(raw), folder)


def _settings() -> st.SearchStrategy[tuple[str | None, tuple[str, ...], tuple[str, ...], str | None]]:
    paths = st.one_of(
        st.sampled_from(
            (
                "workload",
                "workload.seq_len",
                "workload.images",
                "workload.name",
                "shapes",
                "plans",
                "custom_plans.mine",
                "thresholds.peak_ratio",
                "timing",
                "compile.backend",
                "ranks.count",
                "seed",
                "follows",
            )
        ),
        texts,
    )
    given_values = st.one_of(
        st.sampled_from(FRAGMENTS), texts, values.map(lambda value: as_json(value).decode())
    )
    assignments = st.one_of(st.tuples(paths, st.just("="), given_values).map("".join), texts)
    names = st.one_of(
        st.none(),
        st.sampled_from(("gpt", "receipts", "hf:X?a=2020-99-99", "timm:a?b=[", "own:a.b:c", "a.b:c")),
        texts,
        texts.map(lambda text: f"hf:LlamaConfig?a={text}"),
    )
    sweeps = st.one_of(
        st.sampled_from(("blocks", "seq_len=1,2,3", "seq_len=", "=1", "seq_len=&a,*a")), texts
    )
    return st.tuples(
        st.one_of(st.none(), st.sampled_from(tuple(PRESETS)), texts),
        st.lists(assignments, max_size=3).map(tuple),
        st.lists(sweeps, max_size=2).map(tuple),
        names,
    )


def _read_settings(given: Any, folder: Path) -> list[str]:
    preset, settings, sweeps, name = given
    with mock.patch.object(asking, "looked_up", _not_looked):
        spec = asking.asked(preset, None, settings, sweeps, name)
    return admitted(spec, folder)


def _entries() -> st.SearchStrategy[tuple[str, str]]:
    factory = st.sampled_from(
        ("a.b:c", "mine=os.path:join", "mine=os:system", "x=../../a:b", "=a:b", ",")
    )
    without_nul = texts.map(lambda text: text.replace("\0", "").encode("utf-8", "replace").decode())
    one = st.one_of(factory, without_nul, st.tuples(without_nul, factory).map("=".join))
    return st.tuples(st.lists(one, max_size=4).map(",".join), texts)


def _read_entries(given: tuple[str, str], folder: Path) -> list[str]:
    entries, name = given
    with mock.patch.dict("os.environ", {registered.VARIABLE: entries}):
        known = registered.registered()
        spec = parse_spec({"workload": registered.resolve_any(name)})
        if spec.workload.name.startswith("own:"):
            registered.factory_path(spec.workload.name)
    return [printable(f"{key}={value}")[:80] for key, value in known.items()]


def _with_photos(folder: Path) -> None:
    (folder / "photos").mkdir()
    random.seed(0)


KINDS = (
    Kind(
        "specification", specifications, _read_specification, prepare=_with_photos, usual=_written(SPEC)
    ),
    Kind(
        "structure",
        lambda: st.one_of(
            mutated(lambda: SPEC), mutated(lambda: RECEIPTS), mutated(lambda: OWN), values
        ),
        _read_structure,
        prepare=_with_photos,
        usual=SPEC,
    ),
    Kind("settings", _settings, _read_settings, prepare=_with_photos, usual=("quick", (), (), None)),
    Kind("factories", _entries, _read_entries, usual=("mine=a.b:c", "mine")),
)
