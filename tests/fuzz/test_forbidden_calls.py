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
    "pd.read_pickle",
    "tempfile.mktemp",
)
ALLOWED = {
    # The error that torch.load raises for a checkpoint that is damaged; nothing is unpickled by it.
    "recompute_core/reinvest/training.py": {"pickle", "pickle.UnpicklingError"},
}


def found_in(text: str) -> Iterator[str]:
    """The forbidden things that a source uses, by their names in it."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (one.name for one in node.names if one.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module:
            if node.module.partition(".")[0] in MODULES:
                yield node.module
            names = {f"{node.module}.{one.name}" for one in node.names}
            yield from names & {*CALLS, "torch.load", "torch.serialization.load", "builtins.eval"}
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            if name in CALLS or name.partition(".")[0] in (*MODULES, "builtins", "__builtins__"):
                yield name
        elif isinstance(node, ast.Name) and node.id in BUILTINS:
            yield node.id
        if isinstance(node, ast.Call):
            yield from _of_a_call(node)


def _of_a_call(node: ast.Call) -> Iterator[str]:
    name = ast.unparse(node.func)
    said = {one.arg: one.value for one in node.keywords}

    def says(argument: str, value: bool) -> bool:
        given = said.get(argument)
        return isinstance(given, ast.Constant) and given.value is value

    if name == "compile":  # a name that settings have too
        yield name
    if name in ("torch.load", "torch.serialization.load") and not says("weights_only", True):
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
        "pd.read_pickle('x')",
    ],
)
def test_each_of_them_is_seen(text: str) -> None:
    assert list(found_in(text))


@pytest.mark.parametrize(
    "text",
    [
        "model.eval()",
        "torch.load('x', weights_only=True)",
        "torch.compile(model)",
        "re.compile('x')",
        "subprocess.run(['ls'], shell=False)",
        "yaml.safe_load(text)",
        "np.load('x', allow_pickle=False)",
    ],
)
def test_what_only_looks_like_them_is_not(text: str) -> None:
    assert not list(found_in(text))
