"""Imports point one way, those inside functions counted, and importing dspkit costs next to nothing."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from importlib import import_module
from types import ModuleType

import pytest

import dspkit
from benchmarks import _source

HEAVY = ("torch", "gpytorch", "skopt", "pyspark", "pandas", "numpy", "scipy", "plotly", "pyarrow", "ipywidgets")
METHODS = {"core", "workload"}
# Each part and the parts that its code may import when it runs, at any depth; "" is the package itself.
LAYERS = {
    "core": set(),
    "workload": {"core"},
    "bo": METHODS,
    "etp": METHODS,
    "forecasting": METHODS,
    "migration": METHODS,
    "profiling": METHODS | {"etp", "forecasting"},
    "simulator": METHODS,
    "spark": METHODS,
    "loaders": METHODS | {"spark"},  # a log of gigabytes is read by Spark
    "placement": METHODS | {"simulator"},  # only what describes nodes and links: see below
    "policies": METHODS | {"bo", "etp", "forecasting", "migration", "placement", "profiling"},
    "apps": METHODS | {"simulator", "spark", "placement"},
    "experiment": METHODS | {"apps", "policies"},
    "comparison": METHODS | {"apps", "experiment", "forecasting", "policies", "profiling", "simulator"},
    "plots": METHODS | {"bo", "comparison", "etp", "migration", "placement", "profiling"},
    "report": METHODS | {"plots", "policies"},
    "advice": METHODS | {"etp", "plots", "policies", "report", "simulator"},
    "demo": METHODS | {"apps", "experiment", "policies", "report"},
    "testing": METHODS | {"apps", "policies", "simulator", "experiment"},
    "ui": {"*"},
    "__main__": {"apps", "comparison", "core", "demo", "loaders", "policies", "report", "spark"},
}


def test_layers_have_no_cycle():
    TopologicalSorter({part: below - {"*"} for part, below in LAYERS.items()}).prepare()


@pytest.mark.parametrize("part", sorted(set(map(_source.part, _source.modules())) - {""}))
def test_a_part_imports_only_what_lies_below_it(part):
    assert part in LAYERS, "a new part of dspkit needs a place in the layers"
    below = LAYERS[part]
    above = _source.part_imports().get(part, set()) - below - {""}
    assert "*" in below or not above


def test_nothing_in_the_wheel_imports_what_is_outside_of_it():
    outside = ("reproduction", "benchmarks", "tests")
    users = {n for n in _source.modules() for i in _source.imports(n) if i.module.split(".")[0] in outside}
    assert users == set()


def test_imports_have_no_cycle():
    assert _source.cycles() == []


@pytest.mark.parametrize("part", ["policies", "placement"])
def test_policies_and_placement_load_no_engine_of_the_simulator(part):
    code = f"import sys, dspkit.{part} as p; [getattr(p, n) for n in p.__all__]; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    engines = ("dspkit.simulator.simulator", "dspkit.simulator.fluid", "dspkit.simulator.records", "dspkit.spark")
    assert not [name for name in out.split() if name.startswith(engines)]


@pytest.mark.parametrize(("library", "owner"), [("ipywidgets", "ui"), ("pyspark", "spark")])
def test_only_one_part_imports_the_library(library, owner):
    users = {n for n in _source.modules() if any(i.module.split(".")[0] == library for i in _source.imports(n))}
    # Spark reads event logs of gigabytes, too
    assert {_source.part(n) for n in users - {"dspkit.loaders.spark.event_log"}} <= {owner}


# The contract that states must survive pickling pickles what it made itself.
@pytest.mark.parametrize("name", sorted(set(_source.modules()) - {"dspkit.testing.contracts"}))
def test_nothing_unpickles_or_evaluates(name):
    called = {
        n.func.id for n in ast.walk(_source.tree(name)) if isinstance(n, ast.Call) and isinstance(n.func, ast.Name)
    }
    assert not called & {"eval", "exec"}
    libraries = {i.module.split(".")[0] for i in _source.imports(name)}
    assert not libraries & {"pickle", "dill", "joblib", "cloudpickle", "shelve"}


def test_the_house_stays_in_order():
    """The limits of `python -m benchmarks house` that need no run."""
    assert len(_source.modules()) <= 290
    assert len(_source.single_readers()) <= 15
    assert len(_source.repeated_classes()) <= 10
    assert _source.undocumented() == {}


def test_overrides_and_what_keeps_a_contract_are_explained_there(monkeypatch):
    class Base:
        def take(self, rows):
            """Take rows.

            Parameters
            ----------
            rows
                Any.
            """

        def give(self, rows):
            """Give rows."""

        def step(self, state, snapshot):
            """Decide."""

    class Derived(Base):
        def take(self, rows): ...

        def give(self, rows): ...

    for kind in (Base, Derived):
        monkeypatch.setattr(kind, "__module__", "dspkit.made")
        for name in ("take", "give", "step"):
            monkeypatch.setattr(getattr(kind, name), "__module__", "dspkit.made")
        assert list(_source._unexplained(kind)) == ["give"]


@pytest.mark.parametrize("face", _source.FACES)
def test_no_module_hides_a_name_that_loads_on_first_use(face):
    """`package.name` stays the exported function or class, also once the module `package.name` is imported."""
    package = import_module(face)
    if face != "dspkit":  # its packages are names of their own
        modules = {name.rpartition(".")[2] for name in _source.modules() if name.rpartition(".")[0] == face}
        for name in modules & set(package.__all__):
            import_module(f"{face}.{name}")
            assert not isinstance(getattr(package, name), ModuleType)


def test_importing_dspkit_and_its_types_loads_nothing_heavy():
    code = "import sys, dspkit; dspkit.Topology, dspkit.run, dspkit.Plant; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert not {name.split(".")[0] for name in out.split()} & set(HEAVY)


def test_applications_load_neither_engines_nor_solvers():
    """Each Python worker of Spark imports them, with the functions that it runs."""
    code = "import sys, dspkit.apps; dspkit.apps.available(); print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "dspkit.apps.nardelli" in out.split()
    assert not {name.split(".")[0] for name in out.split()} & {"numba", "scipy", "pandas", "pyspark"}


def test_a_run_and_its_policies_load_no_learning_library_and_no_spark():
    code = (
        "import sys, dspkit; policy = dspkit.policies.get('ds2')();"
        "h = dspkit.run(policy, dspkit.apps.star().simulator(), steps=2);"
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
