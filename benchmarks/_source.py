"""Statistics of the package's source: modules, imports, cycles, names, parameters.

Imports are counted at any depth of the code, also inside functions; those for type checkers only are marked.
"""

from __future__ import annotations

import ast
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "dspkit"
# The packages whose `__all__` is for users; what else there is serves these.
PARTS = "advice apps bo comparison core etp forecasting loaders migration placement plots policies profiling".split()
PARTS += "placement.distributed_storm report simulator spark testing ui ui.lessons workload".split()
# Protocols, which implementations need not inherit from.
CONTRACTS = (("core", "Policy"), ("core", "Backend"), ("forecasting", "Predictor"), ("workload", "Workload"))
FACES = ("dspkit", *(f"dspkit.{part}" for part in PARTS))


class Import(NamedTuple):
    """One import statement's target, as an absolute module name."""

    module: str
    typing: bool  # under `if TYPE_CHECKING`


@cache
def modules() -> dict[str, Path]:
    """Return every module of the package by its dotted name; a package has the name of its folder."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        found[name.removesuffix(".__init__")] = path
    return found


@cache
def tree(name: str) -> ast.Module:
    return ast.parse(modules()[name].read_text(encoding="utf-8"))


def is_package(name: str) -> bool:
    return modules()[name].name == "__init__.py"


@cache
def imports(name: str) -> frozenset[Import]:
    """Return everything that a module imports: submodules by their own name, other names by their module's."""
    parts = name.split(".") if is_package(name) else name.split(".")[:-1]
    known = modules()
    found: set[Import] = set()

    def walk(node: ast.AST, typing: bool) -> None:
        for child in ast.iter_child_nodes(node):
            inner = typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test))
            if isinstance(child, ast.Import):
                found.update(Import(alias.name, typing) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = parts[: len(parts) - child.level + 1] if child.level else []
                module = ".".join([*base, *filter(None, [child.module])])
                for alias in child.names:
                    full = f"{module}.{alias.name}"
                    found.add(Import(full if full in known else module, typing))
            walk(child, inner)

    walk(tree(name), False)
    return frozenset(found)


def part(name: str) -> str:
    """Return the part of dspkit that a module belongs to: "core" of "dspkit.core.errors"."""
    return name.split(".")[1] if "." in name else ""


def part_imports() -> dict[str, set[str]]:
    """Return which parts each part imports when it runs, types aside."""
    found: dict[str, set[str]] = defaultdict(set)
    for name in modules():
        for target in imports(name):
            if not target.typing and target.module.startswith("dspkit.") and part(target.module) != part(name):
                found[part(name)].add(part(target.module))
    return dict(found)


def cycles() -> list[list[str]]:
    """Return the groups of modules that import each other when they run (strongly connected components)."""
    import networkx as nx

    graph = nx.DiGraph()
    for name in modules():
        for target in imports(name):
            if not target.typing and target.module in modules() and target.module != name:
                graph.add_edge(name, target.module)
    return [sorted(group) for group in nx.strongly_connected_components(graph) if len(group) > 1]


def single_readers() -> dict[str, str]:
    """Return modules that only one module reads, a sibling in the same folder, each with its reader.

    A module of which the package shows a name has users as readers, and so has a program (`python -m`).
    """
    readers: dict[str, set[str]] = defaultdict(set)
    for name, thing in public():
        readers[thing.__module__].add(name.rpartition(".")[0])
    for name in modules():
        for target in imports(name):
            readers[target.module].add(name)
        if any(isinstance(node, ast.If) and "__main__" in ast.unparse(node.test) for node in tree(name).body):
            readers[name].add("dspkit")
    found = {}
    for name in modules():
        if not is_package(name) and len(readers[name]) == 1:
            (reader,) = readers[name]
            if not is_package(reader) and reader.rpartition(".")[0] == name.rpartition(".")[0]:
                found[name] = reader
    return found


def repeated_classes() -> dict[str, list[str]]:
    """Return the names of classes that are defined in more than one module, private ones aside."""
    homes: dict[str, list[str]] = defaultdict(list)
    for name in modules():
        for node in tree(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                homes[node.name].append(name)
    return {name: where for name, where in homes.items() if len(where) > 1}


def parameter_lists() -> dict[str, int]:
    """Return how many parameters each function of the package takes."""
    found = {}
    for name in modules():
        for node in ast.walk(tree(name)):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                given = node.args
                listed = [*given.posonlyargs, *given.args, *given.kwonlyargs]
                found[f"{name}.{node.name}"] = len([a for a in listed if a.arg not in ("self", "cls")])
    return found


def public() -> Iterator[tuple[str, Any]]:
    """Yield the public functions and classes by the shortest name that a user imports them by, each once."""
    seen = set()
    for face in FACES:
        package = import_module(face)
        for name in package.__all__:
            thing = getattr(package, name)
            ours = isinstance(thing, (type, FunctionType)) and thing.__module__.startswith("dspkit")
            if ours and id(thing) not in seen:
                seen.add(id(thing))
                yield f"{face}.{name}", thing


def undocumented() -> dict[str, str]:
    """Return public callables without a Parameters section or without an example, and which of the two is missing.

    Fields made with `knob()` say themselves what they are. Exceptions and what takes no parameter need no example. A
    method needs the section, its class has the example; what overrides a method, or keeps a contract, inherits both.
    """
    found = {}
    for name, thing in public():
        if isinstance(thing, type) and issubclass(thing, BaseException):
            continue
        text = inspect.getdoc(thing) or ""
        missing = []
        if _parameters(thing) and not _explained(text):
            missing.append("Parameters")
        if ">>>" not in text and (_parameters(thing) or isinstance(thing, FunctionType)):
            missing.append("an example")
        if missing:
            found[name] = " and ".join(missing)
        if isinstance(thing, type):
            found |= {f"{name}.{method}": "Parameters" for method in _unexplained(thing)}
    return found


def _unexplained(kind: type) -> Iterator[str]:
    """Yield the public methods of a class of which neither they nor a contract explain the parameters."""
    contracts = [getattr(import_module(f"dspkit.{part}"), name) for part, name in CONTRACTS]
    for name in dir(kind):
        member = inspect.getattr_static(kind, name)
        method = member.__func__ if isinstance(member, (classmethod, staticmethod)) else member
        if name.startswith("_") or not isinstance(method, FunctionType) or not method.__module__.startswith("dspkit"):
            continue
        sources = [source for source in (*kind.__mro__, *contracts) if hasattr(source, name)]
        if _parameters(method) and not any(_explained(inspect.getdoc(getattr(s, name)) or "") for s in sources):
            yield name


def _explained(text: str) -> bool:
    return "Parameters\n---" in text


def _parameters(thing: Any) -> list[str]:
    """The parameters that a docstring has to explain."""
    if isinstance(thing, type) and is_dataclass(thing):
        return [f.name for f in fields(thing) if f.init and "knob" not in f.metadata]
    try:
        taken = list(inspect.signature(thing).parameters.values())
    except (TypeError, ValueError):
        return []
    return [p.name for p in taken if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name not in ("self", "cls")]


def format_skips() -> int:
    return sum(len(re.findall(r"# fmt: (?:skip|off)", path.read_text(encoding="utf-8"))) for path in modules().values())
