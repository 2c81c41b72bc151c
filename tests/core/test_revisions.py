"""Which code was run, as a study records it."""

import hashlib
import importlib
import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from recompute_core.checks.revisions import revisions_of
from recompute_core.checks.snapshot import describe_batch, describe_optimizer, fixed_update
from recompute_core.results import BatchTensor, Reference, SourceRevision
from recompute_core.spec import OptimizerSettings
from recompute_core.workloads import gpt
from tests.core import cells
from tests.core.toys import mlps, small_gpt

Load = Callable[[str], ModuleType]

SOURCE = """
from torch import nn

class Base(nn.Module):
    def forward(self, x):
        return self.linear(x)

class Block(Base):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.elsewhere = nn.Softmax(-1)

def make():
    return Net(), None
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Writes a text as the module `somebodys`, in a folder of its own, and imports it."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def loaded(source: str) -> ModuleType:
        monkeypatch.delitem(sys.modules, "somebodys", raising=False)
        (tmp_path / "somebodys.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module("somebodys")

    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    return loaded


def sources(module: ModuleType, factory: str | None = None) -> dict[str, SourceRevision]:
    found = revisions_of(module.Net(), ("blocks.0", "blocks.1"), factory)
    return {one.name: one for one in found.sources}


def digest(what: type) -> str:
    return hashlib.sha256(inspect.getsource(what).encode()).hexdigest()


# --- sources --------------------------------------------------------------------------------------


def test_gpt() -> None:
    job = small_gpt()
    found = revisions_of(job.model, job.blocks)
    assert found.model == "recompute_core.workloads.gpt.Gpt"
    named = {one.name.rpartition(".")[2]: one for one in found.sources}
    assert list(named) == ["Attention", "Block", "Gpt", "RMSNorm", "SwiGLU", "Linear"]
    for kind in (gpt.Attention, gpt.Block, gpt.Gpt, gpt.RMSNorm, gpt.SwiGLU):
        one = named[kind.__name__]
        assert (one.file, one.sha256, one.library) == ("gpt.py", digest(kind), None)
    linear = named["Linear"]
    assert linear.sha256 == digest(nn.Linear)
    assert (linear.file, linear.library, linear.version) == ("linear.py", "torch", torch.__version__)
    assert found == revisions_of(small_gpt().model, job.blocks)


def test_a_class_is_recorded_with_those_it_inherits_from(load: Load) -> None:
    found = sources(load(SOURCE))
    assert list(found) == ["somebodys.Base", "somebodys.Block", "somebodys.Net", *list(found)[3:]]
    assert list(found)[3:] == ["torch.nn.modules.linear.Linear"], "a Softmax is outside the blocks"


def test_a_changed_block_has_another_digest_and_alone_has_it(load: Load) -> None:
    before = sources(load(SOURCE), "somebodys:make")
    after = sources(
        load(SOURCE.replace("nn.Linear(2, 2)", "nn.Linear(2, 2, bias=False)")), "somebodys:make"
    )
    assert before.keys() == after.keys()
    changed = [name for name in before if before[name].sha256 != after[name].sha256]
    assert changed == ["somebodys.Block"]


def test_a_factory_is_recorded_too(load: Load) -> None:
    module = load(SOURCE)
    found = revisions_of(module.Net(), ("blocks.0",), "somebodys:make")
    assert found.factory == "somebodys:make"
    one = next(one for one in found.sources if one.name == "somebodys:make")
    assert one.sha256 == hashlib.sha256(inspect.getsource(module.make).encode()).hexdigest()
    gone = revisions_of(module.Net(), ("blocks.0",), "nowhere:make")
    one = next(one for one in gone.sources if one.name == "nowhere:make")
    assert (one.sha256, one.file) == (None, None)
    assert one.no_source


def test_a_class_that_was_typed_in_has_no_source() -> None:
    typed: dict[str, type[nn.Module]] = {}
    exec("class Typed(nn.Module):\n    pass", {"nn": nn, "__name__": "typed"}, typed)
    made = type("Made", (nn.Module,), {"__module__": "nowhere"})
    model = nn.Sequential(typed["Typed"](), made())
    named = {one.name: one for one in revisions_of(model, ("0", "1")).sources}
    for name in ("typed.Typed", "nowhere.Made"):
        assert (named[name].sha256, named[name].file, named[name].library) == (None, None, None)
        assert named[name].no_source is not None


def test_no_folder_is_in_the_record(load: Load, tmp_path: Path) -> None:
    module = load(SOURCE)
    text = revisions_of(module.Net(), ("blocks.0",), "somebodys:make").model_dump_json()
    assert "somebodys.py" in text
    assert "/" not in text


# --- the commit -----------------------------------------------------------------------------------


def git(folder: Path, *words: str) -> str:
    identity = ["-c", "user.name=n", "-c", "user.email=e@example.org"]
    return subprocess.run(
        ["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


@pytest.mark.parametrize("factory", [None, "somebodys:make"])
def test_the_commit_is_that_of_the_models_own_file(
    load: Load, tmp_path: Path, factory: str | None
) -> None:
    def commit() -> tuple[str | None, bool | None]:
        found = revisions_of(module.Net(), ("blocks.0",), factory)
        return found.git_commit, found.git_changed

    module = load(SOURCE)
    assert commit() == (None, None), "in no repository"
    git(tmp_path, "init", "-q")
    assert commit() == (None, None), "nothing is committed"
    (tmp_path / "other.py").write_text("")
    git(tmp_path, "add", "other.py")
    git(tmp_path, "commit", "-q", "-m", "one")
    assert commit() == (None, None), "the file is in no commit"
    git(tmp_path, "add", "somebodys.py")
    git(tmp_path, "commit", "-q", "-m", "two")
    head = git(tmp_path, "rev-parse", "HEAD")
    (tmp_path / "other.py").write_text("changed")
    assert commit() == (head, False), "another file does not matter"
    (tmp_path / "somebodys.py").write_text(SOURCE + "\n")
    assert commit() == (head, True)
    (tmp_path / ".gitignore").write_text("somebodys.py")
    git(tmp_path, "rm", "-q", "--cached", "somebodys.py")
    git(tmp_path, "commit", "-q", "-m", "three")
    assert commit() == (None, None), "ignored, as an environment's packages are"


def test_installed_code_has_no_commit() -> None:
    """This environment lies in a folder of our own repository."""
    found = revisions_of(nn.Sequential(nn.Linear(2, 2)), ("0",))
    assert found.model == "torch.nn.modules.container.Sequential"
    assert (found.git_commit, found.git_changed) == (None, None)


# --- optimizer and batch --------------------------------------------------------------------------


def test_the_optimizer_and_its_state() -> None:
    def described(seed: int = 0, lr: float = 1e-3) -> tuple[str, dict[str, object], str]:
        job = mlps(2, lambda: nn.Dropout(0.5))
        found = fixed_update(job, OptimizerSettings(lr=lr), seed)
        one = describe_optimizer(job.model, found.optimizer)
        return one.name, dict(one.settings), one.state_digest

    name, settings, state = described()
    assert name == "AdamW"
    assert (settings["lr"], settings["weight_decay"], settings["betas"]) == (1e-3, 0.01, (0.9, 0.999))
    assert described() == (name, settings, state)
    assert described(lr=1e-2)[1]["lr"] == 1e-2
    assert described(seed=1)[2] != state, "another dropout, other gradients"
    assert described(lr=1e-2)[2] == state, "moments do not depend on the first step's rate"


def test_the_batch() -> None:
    assert describe_batch(small_gpt()) == (
        BatchTensor(name="0", shape=(2, 16), dtype="int64"),
        BatchTensor(name="1", shape=(2, 16), dtype="int64"),
    )


def test_a_reference_of_an_earlier_version_says_nothing_of_it() -> None:
    raw = cells.reference().model_dump(mode="json")
    for name in ("revisions", "optimizer", "rng", "batch", "fingerprints"):
        assert raw.pop(name) is None
    assert Reference.model_validate(raw) == cells.reference()
