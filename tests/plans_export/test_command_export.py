"""`export` as a user types it, and what its costs are made of."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from recompute_core.__main__ import cli
from recompute_core.estimating import estimate
from recompute_core.exporting import costs, export, warning
from recompute_core.plans.export import TARGETS, Target
from recompute_core.plans.names import regions_of
from recompute_core.spec import Ranks, StudySpec, parse_spec
from recompute_core.studies.flow import CellKey
from recompute_core.studies.store import Cell, Store
from tests.core import cells as made

from .plans import load

SPEC = parse_spec(
    {
        "workload": {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "vocab": 17, "batch": 2},
        "shapes": [{"seq_len": 16}, {"seq_len": 8}],
        "plans": ["every-block", "every-2nd-block", "nested", "torchtitan-selective"],
    }
)


def run(home: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "recompute_core", "export", *words],
        capture_output=True,
        text=True,
        env={**os.environ, "RECOMPUTE_HOME": str(home)},
        timeout=120,
    )


@pytest.fixture
def study(tmp_path: Path) -> str:
    store = Store(tmp_path)
    study = store.create(SPEC)
    store.close()
    return study


def test_to_standard_output_with_a_warning_beside_it(tmp_path: Path, study: str) -> None:
    done = run(tmp_path, study, "--candidate", "nested", "--to", "torch")
    assert done.returncode == 0, done.stderr
    file = tmp_path / "plan.py"
    file.write_text(done.stdout)
    assert len(load(file).REGIONS) == 6
    assert study in done.stdout
    assert done.stderr == (
        f"warning: nested did not pass its gates in study {study}: Not decided yet: nested at T=16 B=2. "
        "It did not pass at 2 of 2 shapes.\n"
    )


def test_to_a_file_and_as_json(tmp_path: Path, study: str) -> None:
    out, record = tmp_path / "plan.toml", tmp_path / "plan.json"
    words = ("--candidate", "nested", "--to", "torchtitan", "--out", str(out), "--json", str(record))
    done = run(tmp_path, study, *words)
    assert (done.returncode, done.stdout) == (0, "")
    found = json.loads(record.read_text())
    assert out.read_text() == found["text"]
    assert (found["schema"], found["to"], found["plan"]) == (
        "recompute-export/1",
        "torchtitan",
        "nested",
    )
    assert (found["exact"], found["written_for"]) == (False, "torchtitan 0.2")
    assert found["nearest"]["kind"] == "estimated"
    assert found["nearest"]["cost"]["replayed_flops"] < found["nearest"]["plan_cost"]["replayed_flops"]
    assert all(line in done.stderr for line in found["cannot"])
    assert done.stderr.endswith(f"{out}: written\n")
    again = run(tmp_path, study, *words)
    assert (again.returncode, again.stderr) == (2, f"error: --out {out}: exists; give another name\n")
    assert found["warning"] in done.stderr


@pytest.mark.parametrize(
    ("out", "module"),
    [
        ("plan.py", "plan"),
        ("my_own.py", "my_own"),
        *((n, "plan_nested") for n in ("my-own.py", "if.py")),
    ],
)
def test_the_module_is_imported_by_the_name_of_its_file(
    tmp_path: Path, study: str, out: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOMPUTE_HOME", str(tmp_path))
    words = (study, "--candidate", "nested", "--to", "torch", "--out", str(tmp_path / out))
    assert CliRunner().invoke(cli, ["export", *words]).exit_code == 0
    assert f"    from {module} import apply_plan, remove_plan\n" in (tmp_path / out).read_text()


@pytest.mark.parametrize("to", TARGETS)
def test_after_a_study_over_ranks_the_file_says_so(to: Target) -> None:
    over = SPEC.model_copy(update={"ranks": Ranks(kind="ddp", count=2)})
    says = " at T=16 B=2, T=8 B=2, measured over 2 ranks (ddp) that share the batch, torch "
    found = export(made.row(spec=over), "nested", to)
    assert says in found.text
    assert any("Estimated at T=16 B=2 in one process, " in line for line in found.cannot) == (
        to != "torch"
    )
    alone = export(made.row(spec=SPEC), "nested", to)
    assert "ranks" not in alone.text and "in one process" not in alone.text


def test_json_alone_on_standard_output(tmp_path: Path, study: str) -> None:
    done = run(tmp_path, study, "--candidate", "every-block", "--to", "torch", "--json", "-")
    found = json.loads(done.stdout)
    assert (found["exact"], found["cannot"], found["nearest"]) == (True, [], None)
    assert "def apply_plan(" in found["text"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("nothing", "--candidate", "nested", "--to", "torch"), "no study 'nothing'"),
        (("STUDY", "--candidate", "mlp", "--to", "torch"), "has no candidate 'mlp'; it has every-block"),
        (("STUDY", "--candidate", "none", "--to", "torch"), "has no candidate 'none'"),
        (("STUDY", "--candidate", "nested", "--to", "jax"), "'jax' is not one of 'torch'"),
        (("STUDY", "--to", "torch"), "Missing option '--candidate'"),
        (
            ("STUDY", "--candidate", "nested", "--to", "torch", "--out", "/nowhere/x.py"),
            "--out /nowhere/x.py: cannot be written",
        ),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, study: str, words: tuple[str, ...], says: str) -> None:
    done = run(tmp_path, *(study if word == "STUDY" else word for word in words))
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_no_torch_before_it_is_needed() -> None:
    code = (
        "import sys, recompute_core.exporting, recompute_core.__main__; sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def played(fails: str | None = None) -> list[Cell]:
    def worker(key: CellKey) -> Cell | None:
        return made.failed(key) if fails == key[1] and key[2] == "time" else None

    return list(made.play(worker)[1].values())


def test_a_plan_that_passed_has_no_warning() -> None:
    row = made.row(status="done")
    assert warning(row, played(), "every-block") is None
    said = warning(row, played(fails="every-block"), "every-block")
    assert said is not None
    assert said.startswith("every-block did not pass its gates in study s: ")
    assert warning(row, played(fails="every-block"), "blocks:1") is None


@pytest.mark.parametrize("to", TARGETS)
def test_the_file_itself_says_that_its_plan_missed_its_gates(to: Target) -> None:
    row = made.row(spec=SPEC)
    said = "nested did not pass its gates: it ended\nimport os"
    beginning = export(row, "nested", to, said).text.splitlines()[:3]
    assert any(
        "Warning: nested did not pass its gates: it ended import os" in line for line in beginning
    )
    text = export(row, "nested", to).text
    assert "Warning" not in text
    if to == "torch":
        assert "as Recompute Studio chose it" in text
        assert "chose it" not in export(row, "nested", to, said).text


@pytest.mark.parametrize("plan", ["every-block", "torchtitan-selective"])
def test_costs_are_those_of_the_estimate_and_of_real_flops(plan: str) -> None:
    from torch.utils.flop_counter import FlopCounterMode

    from recompute_core.meters.flops import FORMULAS
    from recompute_core.plans.apply import applied
    from recompute_core.workloads import gpt

    shape, regions = SPEC.shapes[0], regions_of(SPEC, plan)
    found, ours = costs(SPEC, shape)(regions), estimate(SPEC, shape, plan)
    assert (found.peak_bytes, found.saved_bytes) == (ours.peak_bytes, ours.saved_bytes)
    settings: Any = SPEC.at(shape)
    flops = []
    for each in ((), regions):
        job = gpt.build(settings, seed=0)
        with (
            applied(job.model, each, SPEC.checkpoint),
            FlopCounterMode(display=False, custom_mapping=FORMULAS) as counter,
        ):
            job.model(*job.batch)[1].backward()
        flops.append(counter.get_total_flops())
    assert found.replayed_flops == flops[1] - flops[0] > 0


def test_the_shape_of_the_costs_is_the_one_that_climbs_highest() -> None:
    row = made.row(spec=SPEC)
    made_for: list[str] = [
        line
        for line in export(row, "nested", "torchtitan").cannot
        if line.startswith("Nearest: every layer. Estimated at T=16 B=2")
    ]
    assert len(made_for) == 1


def test_ops_that_never_run_make_no_difference() -> None:
    """torchtitan's policy keeps no products with a bias, and the model has none."""
    assert export(made.row(spec=SPEC), "torchtitan-selective", "torchtitan").exact
    receipts = StudySpec.model_validate(
        {
            "workload": {"name": "receipts", "blocks": 1, "height": 32, "image_width": 32, "batch": 2},
            "plans": ["torchtitan-selective"],
        }
    )
    assert not export(made.row(spec=receipts), "torchtitan-selective", "torchtitan").exact
