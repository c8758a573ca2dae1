"""The public API is what tests/tooling/api.txt says: a change of it is always deliberate.

`python tests/tooling/test_api.py` writes the file again; its difference belongs to the commit that changes the API.
"""

from __future__ import annotations

import difflib
import inspect
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SNAPSHOT = Path(__file__).with_name("api.txt")
UPDATE = "if this is meant, write it down with `python tests/tooling/test_api.py` and tell it in CHANGELOG.md"
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


def api() -> list[str]:
    """Return one line for each public name, and for each public member of the classes among them, sorted."""
    from benchmarks._source import FACES

    lines: set[str] = set()
    homes: dict[int, str] = {}  # where each function and class was met first: elsewhere it is the same thing
    for face in FACES:
        package = import_module(face)
        for name in package.__all__:
            lines.update(_described(f"{face}.{name}", getattr(package, name), homes))
    return sorted(lines)


def _described(path: str, thing: Any, homes: dict[int, str]) -> Iterator[str]:
    if isinstance(thing, ModuleType):
        yield f"{path}: module"
    elif not isinstance(thing, (type, FunctionType)):
        yield f"{path}: {type(thing).__name__}"
    elif (home := homes.setdefault(id(thing), path)) != path:
        yield f"{path} = {home}"
    elif isinstance(thing, FunctionType):
        yield f"{path}{_signature(thing)}"
    else:
        yield f"{path}{_signature(thing) if _ours(thing) else ''}: class"
        if _ours(thing):
            yield from _members(path, thing)


def _members(path: str, kind: type) -> Iterator[str]:
    """Methods, properties and class attributes that classes of dspkit define, those that are inherited too."""
    known: dict[str, Any] = {}
    for base in reversed(kind.__mro__):
        if base.__module__.partition(".")[0] == "dspkit":
            known.update(vars(base))
    for name, member in known.items():
        if name.startswith("_"):
            continue
        if isinstance(member, property):
            yield f"{path}.{name}: property{_returned(member.fget)}"
        elif isinstance(member, (staticmethod, classmethod)):
            yield f"{path}.{name}{_signature(member.__func__)}: {type(member).__name__}"
        elif isinstance(member, FunctionType):
            yield f"{path}.{name}{_signature(member)}"
        elif type(member).__name__ == "cached_property":
            yield f"{path}.{name}: property{_returned(member.func)}"


def _ours(kind: type) -> bool:
    """Whether a class takes what dspkit says, and not what a library that it comes from says."""
    makers = [next(b for b in kind.__mro__ if name in vars(b)) for name in ("__init__", "__new__")]
    chosen = [b for b in makers if b is not object]
    return kind.__module__.partition(".")[0] == "dspkit" and all(b.__module__.startswith("dspkit") for b in chosen)


def _returned(function: Any) -> str:
    found = inspect.signature(function).return_annotation
    return "" if found is inspect.Signature.empty else f" -> {_annotation(found)}"


def _signature(thing: Any) -> str:
    """A signature without addresses, paths and whatever else differs from machine to machine."""
    words, before = [], None
    found = inspect.signature(thing)
    for p in found.parameters.values():
        if p.kind is p.KEYWORD_ONLY and before not in (p.KEYWORD_ONLY, p.VAR_POSITIONAL):
            words.append("*")
        if before is p.POSITIONAL_ONLY and p.kind is not p.POSITIONAL_ONLY:
            words.append("/")
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        typed = "" if p.annotation is p.empty else f": {_annotation(p.annotation)}"
        words.append(f"{star}{p.name}{typed}{'' if p.default is p.empty else f' = {_default(p.default)}'}")
        before = p.kind
    if before is inspect.Parameter.POSITIONAL_ONLY:
        words.append("/")
    return f"({', '.join(words)}){'' if isinstance(thing, type) else _returned(thing)}"


def _annotation(given: Any) -> str:
    return given if isinstance(given, str) else inspect.formatannotation(given)


def _default(value: Any) -> str:
    if isinstance(value, (FunctionType, type)):
        return f"{value.__module__}.{value.__qualname__}"
    if isinstance(value, (set, frozenset)):  # whose order changes from process to process
        return f"{type(value).__name__}({{{', '.join(sorted(map(repr, value)))}}})"
    if isinstance(value, Path):
        return "Path(...)"
    return _ADDRESS.sub("", " ".join(repr(value).split()))


def test_the_public_api_is_as_written_down() -> None:
    before = SNAPSHOT.read_text(encoding="utf-8").splitlines()
    changed = list(difflib.unified_diff(before, api(), "api.txt", "dspkit", lineterm="", n=0))
    assert not changed, "\n".join(["the public API is not what tests/tooling/api.txt says:", *changed, UPDATE])


def test_no_public_name_of_a_package_is_a_module_of_the_same_name() -> None:
    from benchmarks._source import FACES

    for face in FACES[1:]:
        package = import_module(face)
        for name in package.__all__:
            # as the import of a module does it, which a test or a notebook may have done before
            loaded = sys.modules.get(f"{face}.{name}")
            assert loaded is None or loaded is not getattr(package, name), f"{face}.{name} is a module"


def test_the_written_api_names_nothing_of_the_machine() -> None:
    text = SNAPSHOT.read_text(encoding="utf-8")
    assert not re.search(r"0x[0-9a-f]{6}", text)
    assert str(ROOT) not in text
    assert not re.search(r"[\"']/(?:home|root|tmp|work|usr|Users)\b", text)


def test_every_public_callable_is_written_down() -> None:
    from benchmarks._source import public

    written = {re.match(r"[\w.]+", line)[0] for line in SNAPSHOT.read_text(encoding="utf-8").splitlines()}  # type: ignore[index]
    assert {name for name, _ in public()} <= written


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    SNAPSHOT.write_text("\n".join(api()) + "\n", encoding="utf-8")
    print(f"wrote {SNAPSHOT}")
