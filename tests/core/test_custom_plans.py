"""Plans given as data: through YAML and JSON and back, and what cannot run in one line."""

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from recompute_core.asking import asked
from recompute_core.errors import InputError
from recompute_core.plans.custom import check_custom_plans
from recompute_core.spec import Region, StudySpec, parse_spec
from recompute_core.studies.admission import admit

OWN: dict[str, Any] = {
    "pairs": [{"modules": ["blocks.0", "blocks.1"]}, {"modules": ["blocks.4", "blocks.5"]}],
    "best at 250 MB": [
        {"modules": ["blocks.2"], "keep": ["aten.mm.default:even", "aten.bmm.default:0,2"]},
        {"modules": ["blocks.3.attn"]},
    ],
}


def asking(own: Any, *plans: str) -> StudySpec:
    return parse_spec({"plans": list(plans or own), "custom_plans": own}, "here")


def test_round_trip_through_yaml_and_json(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({"plans": list(OWN), "custom_plans": OWN}))
    spec = asked(None, path, (), ())
    admit(spec, tmp_path)
    assert spec == asking(OWN)
    assert spec.custom_plans["pairs"][0] == Region(modules=("blocks.0", "blocks.1"))
    again = parse_spec(json.loads(spec.model_dump_json()))
    assert (again, again.digest()) == (spec, spec.digest())
    assert spec.digest() != asking(OWN | {"pairs": OWN["pairs"][:1]}).digest()


def test_the_selective_curve_takes_the_place_of_every_plan(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    path.write_text(yaml.safe_dump({"plans": list(OWN), "custom_plans": OWN}))
    spec = asked(None, path, (), ("blocks",))
    admit(spec, tmp_path)
    assert spec.custom_plans == {}
    assert len(spec.plans) == 6


@pytest.mark.parametrize(
    ("regions", "says"),
    [
        ([], "custom_plans.own: recomputes nothing; give it a region such as {modules: [blocks.0]}"),
        ([["norm"]], "custom_plans.own: 'norm' is not in a block; the blocks are blocks.0 to blocks.5"),
        ([["blocks.0"], ["blocks.6"]], "'blocks.6' is not in a block"),
        ([["blocks.00"]], "'blocks.00' is not in a block"),
        ([["blocks"]], "'blocks' is not in a block"),
        ([["blocks.0", "blocks.2"]], "blocks.0 and blocks.2 cannot be recomputed as one; modules of"),
        ([["blocks.1", "blocks.0"]], "must be whole blocks that follow each other"),
        ([["blocks.1", "blocks.1"]], "must be whole blocks that follow each other"),
        ([["blocks.0.attn", "blocks.0.mlp"]], "must be whole blocks that follow each other"),
        ([["blocks.5", "blocks.6"]], "'blocks.6' is not in a block"),
        ([["blocks.0.attention"]], "no module 'blocks.0.attention'; the parts of a block are norm1"),
        ([["blocks.0.attn.qkv"]], "custom_plans.own: no module 'blocks.0.attn.qkv'"),
        ([["blocks.0.mlp.up.weight"]], "custom_plans.own: no module 'blocks.0.mlp.up.weight'"),
    ],
)
def test_regions_that_cannot_be_recomputed(regions: list[list[str]], says: str, tmp_path: Path) -> None:
    own = {"own": [{"modules": modules} for modules in regions]}
    with pytest.raises(InputError) as caught:
        admit(asking(own), tmp_path)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_many_regions_are_soon_looked_at(tmp_path: Path) -> None:
    blocks = [f"blocks.{number}" for number in range(96)]
    parts = [f"{block}.{part}" for block in blocks for part in ("attn.out", "mlp.up", "mlp.down")]
    own = {"own": [{"modules": [module]} for module in (*blocks, *parts)]}
    raw = {"workload": {"name": "gpt", "blocks": 96}, "plans": ["own"], "custom_plans": own}
    started = time.process_time()
    check_custom_plans(parse_spec(raw))
    assert time.process_time() - started < 2
    own["own"].append({"modules": ["blocks.95.mlp.up"]})
    with pytest.raises(InputError, match=r"blocks.95.mlp.up and blocks.95.mlp.up meet"):
        check_custom_plans(parse_spec(raw))
    own["own"][-1] = {"modules": ["blocks.95.mlp"]}
    with pytest.raises(InputError, match=r"blocks.95.mlp and blocks.95.mlp.up meet"):
        check_custom_plans(parse_spec(raw))


def test_more_modules_than_any_plan_needs() -> None:
    one = {"modules": ["blocks.0"] * 1024}
    with pytest.raises(InputError, match="custom_plans: 17408 modules in all plans; at most 16384"):
        asking({"own": [one] * 17})


@pytest.mark.parametrize("name", ["norms", "every-block", "none", "blocks:0,1", "blocks:mine"])
def test_a_name_that_is_taken(name: str, tmp_path: Path) -> None:
    own = {name: [{"modules": ["blocks.0"]}]}
    with pytest.raises(InputError, match=rf"^custom_plans.{name}: a named plan is called that already"):
        admit(asking(own, "every-block"), tmp_path)


def test_a_custom_plan_that_plans_does_not_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^custom_plans.pairs: plans does not name it; add it there"):
        admit(asking(OWN, "best at 250 MB"), tmp_path)


def test_a_plan_that_nothing_defines(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^plans\[2\]: unknown plan 'mine'; known: none"):
        admit(asking(OWN, *OWN, "mine"), tmp_path)


@pytest.mark.parametrize(
    ("own", "says"),
    [
        ({"own": [{"modules": []}]}, "custom_plans.own[0].modules: tuple should have at least 1 item"),
        ({"own": [{"modules": ["blocks..0"]}]}, "custom_plans.own[0].modules[0]: string should match"),
        ({"own": [{"modules": ["a b"]}]}, "custom_plans.own[0].modules[0]: string should match"),
        ({"own": [{}]}, "custom_plans.own[0].modules: field required"),
        ({"own": [{"modules": ["blocks.0"], "keep": ["mm"]}]}, "custom_plans.own[0].keep[0]"),
        ({"own": [{"modules": ["blocks.0"], "keep": ["aten.mm.default:first"]}]}, ".keep[0]"),
        ({"own": [{"modules": ["blocks.0"], "skip": 1}]}, "custom_plans.own[0].skip: no such setting"),
        ({"own": "blocks.0"}, "custom_plans.own: input should be a valid tuple"),
        ({"": [{"modules": ["blocks.0"]}]}, "string should have at least 1 character"),
        ({"a\nb": [{"modules": ["blocks.0"]}]}, "string should match"),
    ],
)
def test_data_that_is_no_plan(own: Any, says: str) -> None:
    with pytest.raises(InputError) as caught:
        asking(own, "every-block")
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
