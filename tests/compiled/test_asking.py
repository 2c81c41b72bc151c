"""What a compiled study may be asked for, and what is refused in one line."""

import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from recompute_core.compiled.cache import cache_folder, check_compiler, kernel_makers, use_folder
from recompute_core.errors import InputError
from recompute_core.estimating import estimate
from recompute_core.exporting import export
from recompute_core.planning import Wish, plan
from recompute_core.plans.names import budget_of, hash_of, regions_of
from recompute_core.reinvest.admission import asked_of
from recompute_core.spec import StudySpec, parse_spec
from recompute_core.studies.admission import admit
from recompute_core.studies.searching import start_search
from recompute_core.studies.store import Store

SMALL = {"workload": {"name": "gpt", "blocks": 2, "width": 32, "heads": 2, "seq_len": 16, "batch": 2}}


def spec_of(backend: str | None = "aot_eager", *plans: str) -> StudySpec:
    asked = {"compile": {"backend": backend}} if backend else {}
    return parse_spec({**SMALL, **asked, "plans": plans or ["every-block"]})


def test_a_budget_is_a_percentage() -> None:
    assert [budget_of(f"memory-budget-{n}") for n in ("0", "50", "99")] == [0, 50, 99]
    for other in ("memory-budget-100", "memory-budget-", "memory-budget-5.5", "every-block"):
        assert budget_of(other) is None


def test_budgets_differ_by_their_hash_and_other_hashes_stay() -> None:
    spec = spec_of("aot_eager", "memory-budget-50", "memory-budget-25", "every-block")
    assert len({hash_of(spec, each) for each in spec.plans}) == 3
    assert hash_of(spec, "every-block") == hash_of(spec_of(None), "every-block")
    assert regions_of(spec, "memory-budget-50") == ()


def test_a_study_that_is_not_compiled_says_nothing_of_it() -> None:
    assert "compile" not in spec_of(None).model_dump(mode="json")
    assert parse_spec({**SMALL, "compile": None}).digest() == spec_of(None).digest()
    assert spec_of().digest() != spec_of(None).digest()


def test_a_budget_needs_a_compiled_study(tmp_path: Path) -> None:
    with pytest.raises(
        InputError, match=r"^plans\[0\]: plan 'memory-budget-50' is a compiler's: it needs"
    ):
        admit(spec_of(None, "memory-budget-50"), tmp_path)
    with pytest.raises(InputError, match="unknown plan 'memory-budget-100'; known: none, every-block"):
        admit(spec_of("aot_eager", "memory-budget-100"), tmp_path)


def test_an_unknown_backend_is_one_line() -> None:
    with pytest.raises(InputError, match=r"compile\.backend: input should be 'inductor', 'aot_eager'"):
        spec_of("nvfuser")


def test_inductor_without_a_compiler_is_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InputError, match=r"^compile\.backend: inductor needs a C\+\+ compiler"):
        admit(spec_of("inductor"), tmp_path)
    admit(spec_of("aot_eager"), tmp_path)


def test_what_cannot_speak_of_compiled_updates_says_so(tmp_path: Path) -> None:
    spec = spec_of()
    with closing(Store(tmp_path)) as store:
        study = store.create(spec)
        for ask in (
            lambda: estimate(spec, spec.shapes[0], "every-block"),
            lambda: plan(spec, Wish(frontier=True)),
            lambda: start_search(store, study, "T=16 B=2"),
            lambda: asked_of(store, study, None, None, "quick"),
        ):
            with pytest.raises(InputError, match=r"speaks of updates that are not compiled; leave"):
                ask()


def test_a_budget_is_exported_as_the_lines_that_set_it(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        row = store.study(store.create(spec_of("aot_eager", "memory-budget-25", "every-block")))
    found = export(row, "memory-budget-25", "torch")
    assert found.exact
    assert 'Measured with backend="aot_eager"' in found.text
    assert "# To undo: set it to 1.0, torch's own, and compile again" in found.text
    assert found.text.splitlines()[-3:] == [
        "import torch._functorch.config",
        "",
        "torch._functorch.config.activation_memory_budget = 0.25",
    ]
    with pytest.raises(InputError, match="a setting of torch's compiler, not of megatron"):
        export(row, "memory-budget-25", "megatron")
    assert "graphs take the plan in at the first call" in export(row, "every-block", "torch").text


def test_kernels_do_not_grow_without_bounds(tmp_path: Path) -> None:
    kernel = cache_folder(tmp_path) / "ab" / "kernel.so"
    kernel.parent.mkdir(parents=True)
    kernel.write_bytes(b"x" * 100)
    use_folder(tmp_path, trim=True, largest_bytes=100)
    use_folder(tmp_path, trim=False, largest_bytes=99)
    assert kernel.exists()
    use_folder(tmp_path, trim=True, largest_bytes=99)
    assert not cache_folder(tmp_path).exists()
    use_folder(tmp_path, trim=True)


def test_kernels_are_left_to_another_process_that_uses_them(tmp_path: Path) -> None:
    kernel = cache_folder(tmp_path) / "kernel.so"
    kernel.parent.mkdir()
    kernel.write_bytes(b"x" * 100)
    using = (
        "import sys, pathlib; from recompute_core.compiled.cache import use_folder; "
        "use_folder(pathlib.Path(sys.argv[1]), trim=False); print('using', flush=True); input()"
    )
    command = [sys.executable, "-c", using, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "using\n"
        use_folder(tmp_path, trim=True, largest_bytes=99)
        assert kernel.exists()
        other.kill()
    use_folder(tmp_path, trim=True, largest_bytes=99)
    assert not kernel.exists()


def test_the_compiler_that_is_recorded_is_the_one_that_torch_takes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    named = tmp_path / "mine"
    named.write_text("#!/bin/sh\necho mine 1.2\n")
    named.chmod(0o700)
    monkeypatch.setenv("CXX", str(named))
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3.9"))
    assert kernel_makers("cpu") == {"cxx": "mine 1.2"}
    assert kernel_makers("cuda") == {"cxx": "mine 1.2", "triton": "3.9"}
    monkeypatch.setenv("CXX", str(tmp_path / "none"))
    with pytest.raises(InputError, match=r"needs a C\+\+ compiler and there is no .*/none"):
        check_compiler("inductor")  # though g++ is here
