"""Cache keys made of source code: a key changes if and only if code that a result depends on changes.

A module's dependencies are found in its text, without importing it, and followed through its own top-level package and
through dspkit. Keys depend on the contents of modules and on how they import each other, not on names, paths and dates:
a moved module is never mistaken for another one, and a package that was copied or reinstalled keeps its keys.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

_IMPORT = re.compile(
    r"^(?P<indent>[ \t]*)"
    r"(?:from[ \t]+(?P<base>[\w.]+)[ \t]+import[ \t]*(?P<names>\([^)]*\)|[^\n#]*)|import[ \t]+(?P<plain>[^\n#]+))",
    re.MULTILINE,
)
_TYPES_ONLY = re.compile(r"^if (?:typing\.)?TYPE_CHECKING:\n(?:[ \t]+[^\n]*\n|\n)+", re.MULTILINE)
_LAZY = re.compile(r"^def __getattr__\(", re.MULTILINE)
_BOUND = re.compile(r"^(?:def |class )?(\w+)", re.MULTILINE)


class _Import(NamedTuple):
    """An import statement: `from <base> import <names>`, or `import <base>` without names."""

    base: str
    names: tuple[tuple[str, str], ...]  # (name in the other module, name in this one)
    nested: bool  # inside a function or a condition


class _Source(NamedTuple):
    digest: bytes
    imports: tuple[_Import, ...]
    dynamic: bool  # whether it imports names that are computed at run time
    defined: frozenset[str]  # names that it binds itself, if it has a module-level `__getattr__` for the others


def module_key(path: str | Path, *, nested: bool = False) -> str:
    """Return a key for the code of one module and of all modules that it imports, directly or not.

    Imports for type checkers alone are ignored. A package whose `__init__` imports computed names stands for all of its
    modules.

    Parameters
    ----------
    path
        The module's file.
    nested
        Also follow imports inside functions, which the code may execute when it runs.

    Examples
    --------
    >>> from dspkit.core import errors, files
    >>> len(module_key(files.__file__)), module_key(files.__file__) == module_key(errors.__file__)
    (64, False)
    """
    digest, numbers = hashlib.sha256(), dict[Path, int]()

    def visit(module: Path) -> None:
        if module in numbers:
            digest.update(b"seen %d;" % numbers[module])
            return
        numbers[module] = len(numbers)
        digest.update(_source(module).digest)
        for other in dependencies(module, nested=nested):
            visit(other)
        digest.update(b"end;")

    visit(Path(path).resolve())
    return digest.hexdigest()


def package_key(*paths: str | Path) -> str:
    """Return a key for all code of the top-level packages that contain these files.

    Examples
    --------
    >>> from dspkit.core import errors, files
    >>> package_key(files.__file__) == package_key(errors.__file__)
    True
    """
    homes = {_package(Path(path).resolve()) for path in paths}
    contents = {_source(module).digest for home in homes for module in _modules(home)}
    return hashlib.sha256(b"".join(sorted(contents))).hexdigest()


@cache
def dependencies(module: Path, *, nested: bool = False) -> tuple[Path, ...]:
    """Return the modules that this one imports from its own package and from dspkit, in the order of its text.

    A name that a package's `__init__` re-exports counts as imported from its home module.

    Examples
    --------
    >>> from dspkit.core import files
    >>> [other.name for other in dependencies(Path(files.__file__).resolve())]
    ['errors.py']
    """
    source = _source(module)
    found = [
        other
        for statement in source.imports
        if nested or not statement.nested
        for other in _imported(module, statement)
    ]
    if source.dynamic and not source.defined and module.name == "__init__.py":
        found += _modules(module.parent)
    return tuple(dict.fromkeys(other for other in found if other != module))


def _imported(module: Path, statement: _Import) -> Iterator[Path]:
    """Yield the files from which this statement takes its names."""
    for folder in _folders(module, statement.base):
        for name, _ in statement.names or (("", ""),):
            yield from _origin(folder, name)


def _folders(module: Path, base: str) -> Iterator[Path]:
    """Yield the possible locations of `base`: a folder for a package, and the same path with .py for a module."""
    ups = len(base) - len(base.lstrip("."))
    parts = [part for part in base[ups:].split(".") if part]
    if ups:
        yield module.parents[ups - 1].joinpath(*parts)
        return
    for home in dict.fromkeys((_package(module), _package(Path(__file__).resolve()))):
        if parts[0] == home.name:
            yield home.joinpath(*parts[1:])


def _origin(folder: Path, name: str) -> Iterator[Path]:
    """Yield the module that defines `name`, imported from `folder`: a package, or a module without its .py."""
    file = _file(folder)
    if name and (inner := _file(folder / name)) is not None:
        yield inner
    elif file is not None and file.name != "__init__.py":
        yield file
    elif file is not None:
        source = _source(file)
        for statement in source.imports:
            for there, here in statement.names:
                if here == name and not statement.nested:
                    for further in _folders(file, statement.base):
                        yield from _origin(further, there)
                    return
        yield file
        if source.defined and name not in source.defined:
            yield from _modules(folder)


def _file(folder: Path) -> Path | None:
    """Return the file of a module or package; None if there is none."""
    module = folder.with_name(f"{folder.name}.py")
    return next((f for f in (folder / "__init__.py", module) if _is_file(f)), None)


@cache
def _is_file(path: Path) -> bool:
    return path.is_file()


@cache
def _package(module: Path) -> Path:
    """Return the outermost package that contains a file; its folder if there is none."""
    home = module.parent
    while (home.parent / "__init__.py").is_file() and (home / "__init__.py").is_file():
        home = home.parent
    return home


def _modules(home: Path) -> list[Path]:
    """Return all modules below a folder, in an order that depends on their contents alone."""
    return sorted(home.rglob("*.py"), key=lambda path: _source(path).digest)


@cache
def _source(path: Path) -> _Source:
    """Return a module's content, read once per process: imported code is what the file held at that time."""
    content = path.read_bytes()
    text = _TYPES_ONLY.sub("", content.decode("utf-8", "replace").replace("\r\n", "\n"))
    imports = []
    for found in _IMPORT.finditer(text):
        nested = bool(found["indent"])
        if found["plain"]:
            imports += [_Import(base, (), nested) for base, _ in _names(found["plain"])]
        else:
            imports.append(_Import(found["base"], _names(found["names"]), nested))
    defined = frozenset(_BOUND.findall(text)) if _LAZY.search(text) else frozenset()
    return _Source(hashlib.sha256(content).digest(), tuple(imports), "import_module(" in text, defined)


def _names(text: str) -> tuple[tuple[str, str], ...]:
    """Return `a, b as c` as ((a, a), (b, c))."""
    bare = re.sub(r"#[^\n]*|[()\\]", " ", text)
    parts = [part.split() for part in bare.split(",") if part.strip()]
    return tuple((words[0], words[-1]) for words in parts)
