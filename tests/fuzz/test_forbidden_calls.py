"""What would run what was read: none of it is anywhere in the product. Read off the syntax trees."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = sorted([*ROOT.glob("recompute_core/**/*.py"), *ROOT.glob("pages/**/*.py"), ROOT / "app.py"])
MODULES = ("pickle", "cPickle", "_pickle", "marshal", "shelve", "dill", "cloudpickle", "joblib")
BUILTINS = ("eval", "exec", "__import__")
CALLS = (
    "os.system",
    "os.popen",
    "subprocess.getoutput",
    "subprocess.getstatusoutput",
    "yaml.load",
    "yaml.load_all",
    "yaml.full_load",
    "yaml.full_load_all",
    "yaml.unsafe_load",
    "yaml.unsafe_load_all",
    "yaml.Loader",
    "yaml.FullLoader",
    "yaml.UnsafeLoader",
    "pandas.read_pickle",
    "tempfile.mktemp",
)
LOADS = ("torch.load", "torch.serialization.load")
METHODS = (
    "all_gather_object",
    "broadcast_object_list",
    "gather_object",
    "recv_object_list",
    "scatter_object_list",
)
"""By these torch.distributed unpickles what other ranks say."""
ALLOWED = {
    # The error that torch.load raises for a checkpoint that is damaged; nothing is unpickled by it.
    "recompute_core/reinvest/training.py": {"pickle", "pickle.UnpicklingError"},
}


def found_in(text: str) -> Iterator[str]:
    """The forbidden things that a source uses, by their full names whatever it calls them."""
    tree = ast.parse(text)
    aliases = dict(_aliases(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            if node.module.partition(".")[0] in MODULES:
                yield node.module
            names = {f"{node.module}.{one.name}" for one in node.names}
            yield from names & {*CALLS, *LOADS, f"{node.module}.*"}
            yield from (name for name in names if name.startswith("builtins."))
        elif isinstance(node, ast.Attribute):
            name = _full(node, aliases)
            if name in CALLS or name.partition(".")[0] in (*MODULES, "builtins", "__builtins__"):
                yield name
            if node.attr in METHODS:
                yield node.attr
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        if isinstance(node, ast.Call):
            yield from _of_a_call(node, aliases)


def _aliases(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """What names of a source stand for: `t` for `torch`, `run` for `os.system`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((one.asname, one.name) for one in node.names if one.asname)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield from ((one.asname or one.name, f"{node.module}.{one.name}") for one in node.names)


def _full(node: ast.expr, aliases: dict[str, str]) -> str:
    first, dot, rest = ast.unparse(node).partition(".")
    return aliases.get(first, first) + dot + rest


def _of_a_call(node: ast.Call, aliases: dict[str, str]) -> Iterator[str]:
    name = _full(node.func, aliases)
    said = {one.arg: one.value for one in node.keywords}

    def says(argument: str, value: bool) -> bool:
        given = said.get(argument)
        return isinstance(given, ast.Constant) and given.value is value

    if name == "compile":  # a name that settings have too
        yield name
    if name in LOADS and not says("weights_only", True):
        yield f"{name} without weights_only=True"
    if "shell" in said and not says("shell", False):
        yield f"{name} with a shell"
    if "allow_pickle" in said and not says("allow_pickle", False):
        yield f"{name} with allow_pickle"


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_that_was_read_is_ever_run(path: Path) -> None:
    name = str(path.relative_to(ROOT))
    assert set(found_in(path.read_text(encoding="utf-8"))) == ALLOWED.get(name, set())


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.load('x')",
        "torch.load('x', weights_only=False)",
        "torch.load('x', weights_only=flag)",
        "from torch import load",
        "import pickle",
        "import marshal as m",
        "from shelve import open",
        "import pickle\npickle.loads(b'')",
        "eval('1')",
        "exec('1')",
        "run = eval",
        "compile(text, 'x', 'exec')",
        "import builtins\nbuiltins.eval('1')",
        "yaml.load(text, yaml.SafeLoader)",
        "yaml.load(text, Loader=yaml.Loader)",
        "yaml.unsafe_load(text)",
        "from yaml import full_load",
        "subprocess.run('ls', shell=True)",
        "subprocess.run('ls', shell=flag)",
        "os.system('ls')",
        "np.load('x', allow_pickle=True)",
        "import pandas as pd\npd.read_pickle('x')",
        "import torch as t\nt.load(p)",
        "import torch.serialization as s\ns.load(p)",
        "from torch import serialization as s\ns.load(p)",
        "from torch import load as l\nl(p)",
        "import yaml as y\ny.load(text, y.SafeLoader)",
        "from yaml import load as read\nread(text)",
        "import os as o\no.system('ls')",
        "from os import system as s\ns('ls')",
        "def f():\n    import os as o\n    o.popen('ls')",
        "from os import *",
        "from builtins import exec as e",
        "import torch.distributed as dist\ndist.all_gather_object(heard, own)",
    ],
)
def test_each_of_them_is_seen(text: str) -> None:
    assert list(found_in(text))


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "torch.load('x', weights_only=True)",
        "import torch as t\nt.load('x', weights_only=True)",
        "from .yaml import load",
        "import json as yaml\nyaml.load(file)",
        "from safetensors.torch import load",
        "torch.compile(model)",
        "re.compile('x')",
        "subprocess.run(['ls'], shell=False)",
        "yaml.safe_load(text)",
        "np.load('x', allow_pickle=False)",
    ],
)
def test_what_only_looks_like_them_is_not(text: str) -> None:
    assert not list(found_in(text))
