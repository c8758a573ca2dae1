"""One quantity, one name: knobs and public parameters beside the tables of docs/glossary.md."""

import ast
import dataclasses
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import dspkit
from dspkit import policies
from dspkit.core import knob, knobs_of

ROOT = Path(dspkit.__file__).parents[1]
GLOSSARY = ROOT / "docs" / "glossary.md"


def _table(heading):
    """Rows of the first table below a heading of the glossary, with backticks taken off."""
    text = GLOSSARY.read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    rows = [line.strip("|").split("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


NAMES = {name: unit for name, unit, _ in _table("Parameters")}
FORBIDDEN = {name: (instead, where) for name, instead, where in _table("Words that are not used")}
AMERICAN = re.compile("(util|stabil|normal|optim|minim|maxim|serial)iz")  # scikit's and SciPy's names are not ours


def _classes():
    """Every dataclass of the package and the template, each once."""
    found = {}
    for info in pkgutil.walk_packages(dspkit.__path__, "dspkit."):
        if info.name.rpartition(".")[2] == "__main__":
            continue
        try:
            module = importlib.import_module(info.name)
        except ImportError:  # of an optional extra that is not installed
            continue
        for value in vars(module).values():
            if inspect.isclass(value) and dataclasses.is_dataclass(value) and value.__module__ == info.name:
                found[value] = None
    return list(found)


def _knobs(classes):
    """Each knob with the class whose annotation makes it, not the classes that inherit it."""
    return [(c, k) for c in classes for k in knobs_of(c) if k.name in inspect.get_annotations(c)]


def _faults(pairs):
    """What is wrong with knobs, given as (class, knob)."""
    owners = {}
    for cls, k in pairs:
        owners.setdefault(k.name, set()).add(cls)
    faults = []
    for cls, k in pairs:
        where = f"{cls.__module__}.{cls.__name__}.{k.name}"
        if k.name in FORBIDDEN:
            faults.append(f"{where}: is called {FORBIDDEN[k.name][0]}")
        elif k.name in NAMES and NAMES[k.name] and k.unit not in ("", NAMES[k.name]):
            faults.append(f"{where}: in {k.unit}, not {NAMES[k.name]}")
        elif k.name not in NAMES and not k.help.strip():
            faults.append(f"{where}: is in no table, and has no help")
        elif k.name not in NAMES and len(owners[k.name]) > 1:
            faults.append(f"{where}: several classes have it; it belongs into the glossary's table of parameters")
    return faults


def _public_parameters(source):
    """(line, name) of the parameters of public functions and methods, and of the fields of public classes."""

    def visit(body):
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                for line in node.body:
                    if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name):
                        yield line.lineno, line.target.id
                yield from visit(node.body)
            elif isinstance(node, ast.FunctionDef) and (node.name == "__init__" or not node.name.startswith("_")):
                for a in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                    yield a.lineno, a.arg

    return list(visit(ast.parse(source).body))


def _named_otherwise(source):
    """Public parameters with a name that another one stands for, or in American spelling."""
    everywhere = {name for name, (_, where) in FORBIDDEN.items() if where == "parameter"}
    return [
        f"line {line}: {name}"
        for line, name in _public_parameters(source)
        if name in everywhere or AMERICAN.search(name)
    ]


def test_the_tables_are_read_and_do_not_contradict_each_other():
    assert len(NAMES) == len(_table("Parameters")) > 40
    assert len(FORBIDDEN) == len(_table("Words that are not used")) > 30
    assert not FORBIDDEN.keys() & NAMES.keys()
    own = {k.name for _, k in _knobs(_classes())}
    assert {instead for instead, _ in FORBIDDEN.values()} <= NAMES.keys() | own | {"partitions"}
    assert {where for _, where in FORBIDDEN.values()} == {"knob", "parameter"}
    assert not NAMES.keys() - own, "in the table, but no knob has it"


def test_a_knob_has_the_name_of_its_quantity():
    pairs = _knobs(_classes())
    assert {policies.get(name) for name in policies.available()} <= {cls for cls, _ in pairs} | {policies.get("static")}
    assert _faults(pairs) == []


@pytest.mark.parametrize(
    ("name", "help", "unit", "fault"),
    [
        ("rest_s", "rest after a change", "s", "cooldown_s"),
        ("target_latency_s", "latency to meet", "ms", "in ms, not s"),
        ("mine", "", "", "no help"),
        ("duty", "share of the period that is high", "", "several classes"),
    ],
)
def test_a_wrong_knob_is_found(name, help, unit, fault):
    made = dataclasses.make_dataclass(
        "Made", [(name, float, knob(1.0, help, low=0.0, high=2.0, unit=unit))], frozen=True
    )
    (found,) = [f for f in _faults([*_knobs([made]), *_knobs(_classes())]) if ".Made." in f]
    assert fault in found


def test_public_parameters_have_no_forbidden_synonym():
    faults = [
        f"{path.relative_to(ROOT)}, {fault}"
        for path in sorted((ROOT / "dspkit").rglob("*.py"))
        for fault in _named_otherwise(path.read_text(encoding="utf-8"))
    ]
    assert faults == []


def test_a_wrong_parameter_is_found():
    source = """
class Shown:
    law: str
    slo_s: float
    def told(self, rest_s): ...
def _own(slo_s): ...
def open(utilization=1, *, target_latency=None): ...
"""
    found = _named_otherwise(source)
    assert [f.rpartition(": ")[2] for f in found] == ["slo_s", "rest_s", "utilization", "target_latency"]
