"""Search the package for calls that could execute code from a file."""

import ast
import pathlib

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[1]
DANGEROUS_NAMES = {"eval", "exec", "__import__", "load_model"}
DANGEROUS_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "jsonpickle"}
DANGEROUS_CALLS = {"yaml.load", "os.system", "os.popen"}
DANGEROUS_WITHOUT = {
    "torch.load": "weights_only=True",
    "np.load": "allow_pickle=False",
    "numpy.load": "allow_pickle=False",
}


def dangers(source):
    """Return the calls in a program that could execute code from data."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & DANGEROUS_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & DANGEROUS_MODULES
            found |= {alias.name for alias in node.names} & (DANGEROUS_NAMES | DANGEROUS_MODULES)
        elif isinstance(node, ast.Name):
            found |= {node.id} & DANGEROUS_NAMES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & (DANGEROUS_NAMES | DANGEROUS_MODULES)
            found |= {ast.unparse(node)} & DANGEROUS_CALLS
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in DANGEROUS_WITHOUT:
            name = ast.unparse(node.func)
            found |= set() if DANGEROUS_WITHOUT[name] in map(ast.unparse, node.keywords) else {name}
        elif isinstance(node, ast.keyword):
            disabled = isinstance(node.value, ast.Constant) and node.value.value is False
            found |= set() if disabled else {node.arg} & {"allow_pickle", "shell"}
    return found


@pytest.mark.parametrize(
    "source, found",
    [
        ("eval(text)", {"eval"}),
        ("run = exec", {"exec"}),
        ("import pickle as p", {"pickle"}),
        ("import numpy, marshal", {"marshal"}),
        ("from shelve import open", {"shelve"}),
        ("import numpy as np\nnp.load(path)", {"np.load"}),
        ("np.load(path, allow_pickle=False)", set()),
        ("np.save(path, x, allow_pickle=True)", {"allow_pickle"}),
        ("np.save(path, x, allow_pickle=False)", set()),
        ("tf.keras.models.load_model(path)", {"load_model"}),
        ("from tensorflow.keras.models import load_model as m", {"load_model"}),
        ("yaml.load(text)", {"yaml.load"}),
        ("torch.load(path, weights_only=False)", {"torch.load"}),
        ("torch.load(path, weights_only=True)", set()),
        ("json.loads(text)\nmodel.evaluate()\nImage.load()", set()),
    ],
)
def test_find_dangers(source, found):
    assert dangers(source) == found


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("cyclegan/**/*.py"), *ROOT.glob("scripts/**/*.py"), ROOT / "train.py"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_module_executes_data(path):
    allowed = {
        ("export", "formats.py"): {"load_model"},  # loads the file that it wrote, in Keras's safe mode
    }
    assert dangers(path.read_text(encoding="utf-8")) == allowed.get((path.parent.name, path.name), set())
