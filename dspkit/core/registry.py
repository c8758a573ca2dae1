"""A registry of objects that are found by name: built-in ones, those of other packages, and those registered in code.

Other packages offer theirs by an entry point of the registry's group, in their pyproject.toml:

    [project.entry-points."dspkit.policies"]
    mine = "my_package.mine:Mine"
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from .errors import ArgumentError, NotFoundError

T = TypeVar("T")

__all__ = ["Registry"]


class Registry(Generic[T]):
    """Objects of one kind by name, from this package, from other packages and from code.

    An object is known under its own `name`, otherwise under the name that it was offered by. Of two objects with the
    same name the first is kept (built-in, then entry points, then registered), and a warning names both.

    Parameters
    ----------
    group : str
        The entry-point group in which other packages offer theirs, e.g. "dspkit.policies".
    what : str
        The kind of object, for messages, e.g. "policy".
    builtin : callable
        Returns the built-in objects by name. It is called at every look-up, so that a new file is found.
    check : callable
        Takes an object and returns None, or the objection to it as half a sentence ("has no step()").

    Examples
    --------
    >>> shapes = Registry("my_package.shapes", "shape", lambda: {"square": 4}, lambda n: None if n > 2 else "is flat")
    >>> shapes.register(3, "triangle")
    3
    >>> shapes.available()
    {'square': 4, 'triangle': 3}
    >>> shapes.get("sqare")
    Traceback (most recent call last):
    dspkit.core.errors.NotFoundError: got shape 'sqare'; expected one of square, triangle; did you mean 'square'?
    """

    def __init__(
        self, group: str, what: str, builtin: Callable[[], Mapping[str, T]], check: Callable[[Any], str | None]
    ):
        self.group, self.what = group, what
        self._builtin, self._check = builtin, check
        self._registered: dict[str, T] = {}
        self._offered: tuple[tuple[str, ...], tuple[EntryPoint, ...]] = ((), ())

    def register(self, thing: T, name: str | None = None) -> T:
        """Offer an object in this process from now on, and return it, so that this is also a decorator.

        A second object of the same name replaces the first, so that a notebook's cell can be run again.
        """
        if wrong := self._check(thing):
            article = "an" if self.what[0] in "aeiou" else "a"
            raise ArgumentError(
                f"{_label(thing)}, which {wrong}", expected=f"{article} {self.what}", fix=f"see {self.group}"
            )
        self._registered[name or _name(thing) or _label(thing)] = thing
        return thing

    def unregister(self, name: str) -> None:
        """Remove the object that was registered under that name, if there is one."""
        self._registered.pop(name, None)

    def available(self) -> dict[str, T]:
        """Return all objects by name, in alphabetical order.

        Offers of other packages that cannot be imported, or that fail the check, are left out with a warning.
        """
        found: dict[str, T] = {}
        home: dict[str, str] = {}
        for name, thing, where in self._all():
            if name in found:
                if found[name] is not thing:
                    both = f"{_label(found[name])} ({home[name]}) is named {name!r}, too"
                    warnings.warn(f"{_label(thing)} ({where}) is left out: {both}", stacklevel=2)
                continue
            found[name], home[name] = thing, where
        return dict(sorted(found.items()))

    def get(self, name: str) -> T:
        """Return the object of that name.

        Raises
        ------
        NotFoundError
            The name does not exist; the message suggests the nearest one.
        """
        found = self.available()
        if not isinstance(name, str) or name not in found:
            near = get_close_matches(name, found, n=1) if isinstance(name, str) else ()
            fix = f"did you mean {near[0]!r}?" if near else f"see {self.group}.available()"
            raise NotFoundError(f"{self.what} {name!r}", expected=f"one of {', '.join(found)}", fix=fix)
        return found[name]

    def _all(self) -> Iterator[tuple[str, T, str]]:
        for name, thing in self._builtin().items():
            yield name, thing, "built in"
        for entry in self._entries():
            where = f"entry point {entry.name} = {entry.value} of {entry.dist.name if entry.dist else 'a package'}"
            try:
                thing = entry.load()
                wrong = self._check(thing)
            except Exception as error:  # foreign code may raise anything
                wrong = f"{type(error).__name__}: {error}"
            if wrong:
                warnings.warn(f"{self.group}: {where} is left out: {wrong}", stacklevel=4)
                continue
            yield _name(thing) or entry.name, thing, where
        for name, thing in self._registered.items():
            yield name, thing, "registered"

    def _entries(self) -> tuple[EntryPoint, ...]:
        """Return the entry points, which are read again only if `sys.path` has changed: that reads all packages."""
        path = tuple(sys.path)
        if self._offered[0] != path:
            self._offered = path, tuple(entry_points(group=self.group))
        return self._offered[1]


def _name(thing: Any) -> str | None:
    name = getattr(thing, "name", None)
    return name if isinstance(name, str) else None


def _label(thing: Any) -> str:
    return getattr(thing, "__name__", None) or repr(thing)
