"""Imports point one way, and importing dspkit costs next to nothing."""

import ast
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import dspkit

PACKAGE = Path(dspkit.__file__).parent
FILES = sorted(p for p in PACKAGE.rglob("*.py"))
HEAVY = ("torch", "gpytorch", "skopt", "pyspark", "pandas", "numpy", "scipy", "plotly", "pyarrow", "ipywidgets")
FOUNDATION = {"errors", "frozen"}
ALLOWED = {  # module: the dspkit modules it may import, at any depth of its code
    "errors": set(),
    "frozen": set(),
    "structure": FOUNDATION,
    "core": FOUNDATION | {"structure"},
    "knobs": FOUNDATION,
    "queueing": set(),
    "files": FOUNDATION,
}
POLICIES_MAY = {"core", "errors", "frozen", "knobs", "structure", "queueing"}
POLICIES_MAY |= {"bo", "predict", "etp", "profile", "placement"}
POLICIES_MAY |= {"migration"}  # simulated, but no backend


def _name(path: Path) -> str:
    return ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__")


@cache
def _imports(path: Path) -> set[str]:
    """Every module that this file imports anywhere, dspkit's own as "dspkit.x"."""
    here = ["dspkit", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(here[: len(here) - node.level + 1]) if node.level else ""
            module = ".".join(filter(None, (base, node.module or "")))
            found |= {module} if node.module else {f"{module}.{alias.name}" for alias in node.names}
    return found


def _own(path: Path) -> set[str]:
    return {name.split(".")[1] for name in _imports(path) if name.startswith("dspkit.")}


@pytest.mark.parametrize("module", ALLOWED)
def test_the_foundation_knows_nobody_above_it(module):
    assert _own(PACKAGE / f"{module}.py") <= ALLOWED[module]


@pytest.mark.parametrize("path", sorted((PACKAGE / "policies").glob("*.py")), ids=_name)
def test_policies_never_import_a_backend(path):
    assert _own(path) - {"policies"} <= POLICIES_MAY


def test_only_ui_imports_ipywidgets_and_only_spark_imports_pyspark():
    for library, owner in (("ipywidgets", "ui"), ("pyspark", "spark")):
        users = {_name(p).split(".")[0] for p in FILES if any(i.split(".")[0] == library for i in _imports(p))}
        assert users <= {owner}


def test_nothing_but_ui_and_main_imports_ui():
    for path in FILES:
        if _name(path).split(".")[0] not in ("ui", "__main__"):
            assert "ui" not in _own(path), path


def test_imports_have_no_cycle():
    from graphlib import TopologicalSorter

    modules = {_name(p) for p in FILES}
    graph = {}
    for path in FILES:
        names = {i.removeprefix("dspkit.") for i in _top_level(path) if i.startswith("dspkit.")}
        graph[_name(path)] = {n for n in names if n in modules} - {_name(path)}
    TopologicalSorter(graph).prepare()


def _top_level(path: Path) -> set[str]:
    """What is imported when the module is, types aside."""
    tree = ast.parse(path.read_text())
    tree.body = [node for node in tree.body if isinstance(node, (ast.Import, ast.ImportFrom))]
    here = ["dspkit", *path.relative_to(PACKAGE).parts[:-1]]
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.level:
            base = ".".join(here[: len(here) - node.level + 1])
            found |= {f"{base}.{node.module}"} if node.module else {f"{base}.{a.name}" for a in node.names}
    return found


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_a_module_is_at_most_300_lines(path):
    assert len(path.read_text().splitlines()) <= 300


@pytest.mark.parametrize("path", FILES, ids=_name)
def test_nothing_unpickles_or_evaluates(path):
    tree = ast.parse(path.read_text())
    called = {n.func.id for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)}
    assert not called & {"eval", "exec"}
    assert not {i.split(".")[0] for i in _imports(path)} & {"pickle", "dill", "joblib", "cloudpickle", "shelve"}


def test_importing_dspkit_and_its_types_loads_nothing_heavy():
    code = "import sys, dspkit; dspkit.Topology, dspkit.run, dspkit.Plant; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {name.split(".")[0] for name in out.split()} & set(HEAVY)


def test_a_run_and_its_policies_load_no_learning_library_and_no_spark():
    code = (
        "import sys, dspkit; policy = dspkit.policies.get('ds2')();"
        "h = dspkit.run(policy, dspkit.topologies.star().simulator(), steps=2);"
        "dspkit.plots.timeline(h).bundle; print(*sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    loaded = {name.split(".")[0] for name in out.split()}
    assert not loaded & {"torch", "gpytorch", "skopt", "pyspark", "ipywidgets", "plotly"}
    assert "scipy" in loaded  # so the list above is not empty for the wrong reason


def test_every_public_name_is_there():
    for name in dspkit.__all__:
        assert getattr(dspkit, name) is not None
    assert set(dspkit.__all__) <= set(dir(dspkit))
    with pytest.raises(AttributeError, match="no attribute 'typo'"):
        dspkit.typo  # noqa: B018
