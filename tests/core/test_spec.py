"""Specifications: presets parse, every kind of bad input is one line, digests hold every field."""

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recompute_core.errors import InputError
from recompute_core.settings import GptSettings, ReceiptsSettings, shape_key
from recompute_core.spec import PRESETS, StudySpec, parse_spec, preset


def refusal(raw: Any, origin: str = "a.yaml") -> str:
    """The one line that refuses `raw`."""
    with pytest.raises(InputError) as caught:
        parse_spec(raw, origin)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert message.startswith(f"{origin}: ")
    return message.removeprefix(f"{origin}: ")


# --- presets --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_parses(name: str) -> None:
    assert parse_spec(preset(name)).plans[0] == "every-block"


def test_presets_are_what_they_are_called_for() -> None:
    sweep = parse_spec(preset("gpt-sweep"))
    assert [sweep.at(shape).seq_len for shape in sweep.shapes] == [128, 256, 512, 768]
    assert sweep.timing.min_pairs >= 7
    assert parse_spec(preset("receipt")).workload == ReceiptsSettings()


def test_a_preset_is_a_copy() -> None:
    preset("quick")["plans"].append("none")
    assert preset("quick")["plans"] == ["every-block", "every-2nd-block"]


def test_unknown_preset() -> None:
    with pytest.raises(InputError, match="unknown preset 'slow'; known: quick, gpt-sweep, receipt"):
        preset("slow")


def test_the_defaults_are_the_two_projects() -> None:
    spec = parse_spec({})
    assert spec.workload == GptSettings(blocks=6, width=256, heads=8, vocab=65, seq_len=512, batch=8)
    assert spec.thresholds.model_dump() == {
        "gradient_gap": 1e-4,
        "relative_gap": 1e-4,
        "peak_ratio": 0.82,
        "update_ratio": 1.35,
    }


# --- good input -----------------------------------------------------------------------------------


@pytest.mark.parametrize("raw", ["receipts", {"name": "receipts"}, {"name": "receipts", "blocks": 6}])
def test_a_workload_by_name_or_by_settings(raw: Any) -> None:
    assert parse_spec({"workload": raw}).workload == ReceiptsSettings()


def test_settings_without_a_name_are_gpts() -> None:
    assert parse_spec({"workload": {"seq_len": 64}}).workload == GptSettings(seq_len=64)


def test_shapes_override_sizes() -> None:
    spec = parse_spec({"workload": {"batch": 2}, "shapes": [{"seq_len": 64}, {"seq_len": 32}]})
    assert [shape_key(spec.at(shape)) for shape in spec.shapes] == ["T=64 B=2", "T=32 B=2"]
    photos = parse_spec({"workload": "receipts", "shapes": [{"height": 64, "batch": 2}]})
    assert shape_key(photos.at(photos.shapes[0])) == "64x96 B=2"


def test_json_round_trip() -> None:
    spec = parse_spec(preset("quick"))
    assert parse_spec(json.loads(spec.model_dump_json())) == spec


# --- bad input ------------------------------------------------------------------------------------

HUGE = 10**30


@pytest.mark.parametrize(
    ("raw", "path", "value"),
    [
        ({"workload": "bert"}, "workload", "'bert'; known: gpt, receipts"),
        ({"workload": {"name": "bert"}}, "workload", "'bert'"),
        ({"workload": {"name": 3}}, "workload", "3"),
        ({"workload": {"name": None}}, "workload", "None"),
        ({"workload": {"name": ["gpt"]}}, "workload", "['gpt']"),
        ({"workload": {"name": {"gpt": 1}}}, "workload", "{'gpt': 1}"),
        ({"workload": 5}, "workload", "5"),
        ({"workload": None}, "workload", "None"),
        ({"workload": []}, "workload", "[]"),
        ({"colour": "red"}, "colour", "no such setting"),
        ({"gpt": 1}, "gpt", "no such setting"),
        ({"ranks": "ddp"}, "ranks", "expected settings by name, got 'ddp'"),
        ({"compile": "inductor"}, "compile", "expected settings by name, got 'inductor'"),
        ({"workload": {"receipts": 1}}, "workload.receipts", "no such setting"),
        ({"workload": {"depth": 2}}, "workload.depth", "no such setting"),
        ({"thresholds": {"peak": 1}}, "thresholds.peak", "no such setting"),
        ({"workload": {"norm": "layer"}}, "workload.norm", "no such setting"),
        ({"workload": {"seq_len": 0}}, "workload.seq_len", "got 0"),
        ({"workload": {"seq_len": -1}}, "workload.seq_len", "got -1"),
        ({"workload": {"seq_len": "long"}}, "workload.seq_len", "got 'long'"),
        ({"workload": {"seq_len": ""}}, "workload.seq_len", "got ''"),
        ({"workload": {"seq_len": 64.5}}, "workload.seq_len", "got 64.5"),
        ({"workload": {"seq_len": True}}, "workload.seq_len", "got True"),
        ({"workload": {"seq_len": HUGE}}, "workload.seq_len", f"got {HUGE}"),
        ({"workload": {"seq_len": None}}, "workload.seq_len", "got None"),
        ({"workload": {"seq_len": [64]}}, "workload.seq_len", "got [64]"),
        ({"workload": {"seq_len": math.nan}}, "workload.seq_len", "got nan"),
        ({"workload": {"batch": 0}}, "workload.batch", "got 0"),
        ({"workload": {"batch": False}}, "workload.batch", "got False"),
        ({"workload": {"vocab": 1}}, "workload.vocab", "got 1"),
        ({"workload": {"width": 100}}, "workload", "width 100 must be a multiple of 16"),
        ({"workload": {"name": "receipts", "width": 100}}, "workload", "width 100"),
        ({"workload": {"name": "receipts", "height": 100}}, "workload.height", "got 100"),
        ({"workload": {"name": "receipts", "norm": "group"}}, "workload.norm", "got 'group'"),
        ({"workload": {"name": "receipts", "dropout": 1}}, "workload.dropout", "got 1"),
        ({"workload": {"name": "receipts", "dropout": math.nan}}, "workload.dropout", "got nan"),
        ({"shapes": [{"seq_len": 0}]}, "shapes[0].seq_len", "got 0"),
        ({"shapes": [{}, {"seq_len": "x"}]}, "shapes[1].seq_len", "got 'x'"),
        ({"shapes": [{"seq_len": True}]}, "shapes[0].seq_len", "got True"),
        ({"shapes": [{"seq_len": HUGE}]}, "shapes", f"got {HUGE}"),
        ({"shapes": [{"batch": 0}]}, "shapes[0].batch", "got 0"),
        ({"shapes": [{"width": 64}]}, "shapes[0]", "'width'; it has seq_len, batch"),
        ({"shapes": [{"a\nb": 64}]}, "shapes[0]", r"'a\nb'"),
        ({"shapes": [{"a\nb": "x"}]}, "shapes[0]", "got 'x'"),
        ({"shapes": []}, "shapes", "at least 1"),
        ({"shapes": {"seq_len": 64}}, "shapes", "tuple"),
        ({"shapes": [64]}, "shapes[0]", "got 64"),
        ({"shapes": [{}, {}]}, "shapes", "the same"),
        ({"shapes": [{"seq_len": 512}, {}]}, "shapes", "the same"),
        ({"plans": ["none"]}, "plans", "'none'"),
        ({"plans": ["every-block", "every-block"]}, "plans", "once"),
        ({"plans": []}, "plans", "at least 1"),
        ({"plans": "every-block"}, "plans", "got 'every-block'"),
        ({"plans": [1]}, "plans[0]", "got 1"),
        ({"thresholds": {"peak_ratio": math.nan}}, "thresholds.peak_ratio", "got nan"),
        ({"thresholds": {"peak_ratio": -0.5}}, "thresholds.peak_ratio", "got -0.5"),
        ({"thresholds": {"peak_ratio": 1.5}}, "thresholds.peak_ratio", "got 1.5"),
        ({"thresholds": {"peak_ratio": 0}}, "thresholds.peak_ratio", "got 0"),
        ({"thresholds": {"peak_ratio": "low"}}, "thresholds.peak_ratio", "got 'low'"),
        ({"thresholds": {"peak_ratio": True}}, "thresholds.peak_ratio", "got True"),
        ({"thresholds": {"peak_ratio": None}}, "thresholds.peak_ratio", "got None"),
        ({"thresholds": {"update_ratio": 0.5}}, "thresholds.update_ratio", "got 0.5"),
        ({"thresholds": {"update_ratio": math.inf}}, "thresholds.update_ratio", "got inf"),
        ({"thresholds": {"gradient_gap": -math.inf}}, "thresholds.gradient_gap", "got -inf"),
        ({"thresholds": {"gradient_gap": math.inf}}, "thresholds.gradient_gap", "got inf"),
        ({"thresholds": {"gradient_gap": -1e-9}}, "thresholds.gradient_gap", "got -1e-09"),
        ({"thresholds": {"relative_gap": 1}}, "thresholds.relative_gap", "got 1"),
        ({"thresholds": {"relative_gap": math.nan}}, "thresholds.relative_gap", "got nan"),
        ({"thresholds": []}, "thresholds", "got []"),
        ({"timing": {"min_pairs": 9, "max_pairs": 8}}, "timing", "max_pairs 8 is below min_pairs 9"),
        ({"timing": {"min_pairs": 2}}, "timing.min_pairs", "got 2"),
        ({"timing": {"budget_s": math.nan}}, "timing.budget_s", "got nan"),
        ({"timing": {"budget_s": -1}}, "timing.budget_s", "got -1"),
        ({"checkpoint": {"variant": "both"}}, "checkpoint.variant", "got 'both'"),
        ({"checkpoint": {"rng": "keep"}}, "checkpoint.rng", "got 'keep'"),
        ({"optimizer": {"lr": 0}}, "optimizer.lr", "got 0"),
        ({"seed": -1}, "seed", "got -1"),
        ({"seed": 2**63}, "seed", f"got {2**63}"),
        ({"device": "tpu"}, "device", "got 'tpu'"),
        ({"threads": 0}, "threads", "got 0"),
        ({"silence_s": 0}, "silence_s", "got 0"),
    ],
    ids=lambda part: json.dumps(part)[:50] if isinstance(part, dict) else "",
)
def test_bad_input_is_one_line_with_path_and_value(raw: Any, path: str, value: str) -> None:
    message = refusal(raw)
    assert message.startswith(path)
    assert value.casefold() in message.casefold()
    assert len(message) < 300


@pytest.mark.parametrize(
    ("raw", "kind"), [([], "list"), ("gpt", "str"), (None, "NoneType"), (7, "int"), (True, "bool")]
)
def test_what_is_not_a_mapping(raw: Any, kind: str) -> None:
    assert refusal(raw) == f"expected a mapping of settings, got {kind}; an example is 'workload: gpt'"


def test_a_long_value_is_cut() -> None:
    assert len(refusal({"device": "x" * 10_000})) < 200
    assert len(refusal({"workload": "x" * 10_000})) < 300
    assert len(refusal({"plans": ["every-block"] * 60 + [["x" * 10_000]]})) < 200


@pytest.mark.parametrize(
    "raw", [{"a\nb": 1}, {"workload": {"a\nb": 1}}, {"thresholds": {"a\r\u2028b": 1}}, {1: 2}, {"": 1}]
)
def test_a_strange_key_is_still_one_line(raw: Any) -> None:
    assert "no such setting" in refusal(raw) or 1 in raw


leaves = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["gpt", "receipts", "none", "every-block", "cpu", "ignore"])
)
names = st.sampled_from(
    [
        *StudySpec.model_fields,
        *GptSettings.model_fields,
        *ReceiptsSettings.model_fields,
        "min_pairs",
        "peak_ratio",
        "variant",
        "modules",
        "keep",
    ]
)
anything = st.recursive(
    leaves,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(names | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)
section = st.dictionaries(names | st.text(max_size=3), anything, max_size=4)
nearly = st.dictionaries(
    names | st.text(max_size=3), anything | section | st.lists(section, max_size=3), max_size=4
)


@settings(max_examples=600)
@given(anything | nearly)
def test_whatever_is_given_is_a_specification_or_one_line(raw: Any) -> None:
    try:
        spec = parse_spec(raw, "here")
    except InputError:
        assert refusal(raw, "here")
    else:
        assert parse_spec(json.loads(spec.model_dump_json())).digest() == spec.digest()


# --- digests --------------------------------------------------------------------------------------


def test_the_digest_is_stable() -> None:
    assert parse_spec({}).digest() == StudySpec().digest()
    assert parse_spec({"seed": 0, "workload": {"blocks": 6}}).digest() == StudySpec().digest()
    ordered = parse_spec({"workload": {"blocks": 2, "width": 32}})
    turned = parse_spec({"workload": {"width": 32, "blocks": 2}})
    assert ordered.digest() == turned.digest()
    # Written down, so that a change of the canonical form cannot pass unseen.
    assert StudySpec(workload=GptSettings(), device="cpu").digest() == DIGEST_ON_CPU


DIGEST_ON_CPU = "sha256:ca88eb1246ce6a8adfe01f11c284cb695cc646837f195bda53e6ea55f7786c0b"

CHANGES: dict[str, Any] = {
    "workload.blocks": 5,
    "workload.width": 128,
    "workload.heads": 4,
    "workload.vocab": 66,
    "workload.seq_len": 513,
    "workload.batch": 7,
    "shapes": [{"seq_len": 64}],
    "plans": ["every-2nd-block"],
    "thresholds.gradient_gap": 2e-4,
    "thresholds.relative_gap": 2e-4,
    "thresholds.peak_ratio": 0.83,
    "thresholds.update_ratio": 1.36,
    "checkpoint.variant": "forward",
    "checkpoint.early_stop": False,
    "checkpoint.rng": "ignore",
    "timing.min_pairs": 8,
    "timing.max_pairs": 32,
    "timing.width": 0.05,
    "timing.budget_s": 21,
    "optimizer.lr": 2e-3,
    "optimizer.weight_decay": 0.02,
    "custom_plans": {"own": [{"modules": ["blocks.0"]}]},
    "precision": "bfloat16",
    "seed": 1,
    "device": "cpu",
    "threads": 1,
    "ranks": {"kind": "fsdp2", "count": 2},
    "silence_s": 901,
    "engine": "ray",
    "compile": {"backend": "aot_eager"},
    "follows": [{"study": "20261130-141500-49bd", "thresholds": {"update_ratio": 1.4}}],
}


def changed(path: str, value: Any) -> StudySpec:
    section, _, name = path.rpartition(".")
    return parse_spec({section: {name: value}} if section else {name: value})


def test_every_field_has_a_change_here() -> None:
    def paths(model: Any, prefix: str = "") -> set[str]:
        found: set[str] = set()
        for name in type(model).model_fields:
            value = getattr(model, name)
            if hasattr(value, "model_fields_set"):
                found |= paths(value, f"{prefix}{name}.")
            else:
                found.add(prefix + name)
        return found

    assert set(CHANGES) == paths(StudySpec()) - {"workload.name"}


def test_the_digest_holds_every_field() -> None:
    digests = {changed(path, value).digest() for path, value in CHANGES.items()}
    digests |= {StudySpec().digest(), parse_spec({"workload": "receipts"}).digest()}
    assert len(digests) == len(CHANGES) + 2


def test_the_order_of_plans_and_shapes_counts() -> None:
    for name, pair in (
        ("plans", ["every-block", "all-but-last"]),
        ("shapes", [{"seq_len": 64}, {"seq_len": 32}]),
    ):
        assert parse_spec({name: pair}).digest() != parse_spec({name: pair[::-1]}).digest()
