"""Scaling policies, one file each. A file dropped into this folder is found; nothing else is to be registered.

Files that begin with "_" are not policies to offer: `_template.py` is the one to copy.
"""

from __future__ import annotations

import inspect
import pkgutil
import warnings
from dataclasses import is_dataclass
from difflib import get_close_matches
from importlib import import_module
from types import ModuleType
from typing import Any

from ..core import Policy
from ..errors import NotFoundError


def available() -> dict[str, type[Policy]]:
    """Every policy by its name. A file that does not import is named in a warning; the others still work.

    So are two policies of one name; the one of the file that is first in the alphabet is kept.
    """
    found: dict[str, type[Policy]] = {}
    home: dict[str, str] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        try:
            module = import_module(f".{info.name}", __name__)
        except Exception as error:  # a user's own file: whatever is wrong in it
            warnings.warn(f"policies/{info.name}.py is left out: {type(error).__name__}: {error}", stacklevel=2)
            continue
        for cls in defined_in(module):
            name: str = cls.name  # type: ignore[assignment]
            if name in found:
                both = f"{found[name].__name__} of policies/{home[name]}.py"
                warnings.warn(
                    f"{cls.__name__} of policies/{info.name}.py is left out: {both} is named {name!r} too", stacklevel=2
                )
                continue
            found[name], home[name] = cls, info.name
    return dict(sorted(found.items()))


def defined_in(module: ModuleType) -> list[type[Policy]]:
    """The policies that `module` itself defines and that need no other policy to be made."""
    classes: list[type[Any]] = [c for c in vars(module).values() if inspect.isclass(c)]
    return [c for c in classes if c.__module__ == module.__name__ and _complete(c)]


def get(name: str) -> type[Policy]:
    """The policy class of that name."""
    policies = available()
    if name not in policies:
        near = get_close_matches(name, policies, n=1)
        fix = f"did you mean {near[0]!r}?" if near else "see dspkit.policies.available()"
        raise NotFoundError(f"policy {name!r}", expected=f"one of {', '.join(policies)}", fix=fix)
    return policies[name]


def _complete(cls: type) -> bool:
    """Wrappers are left out: they cannot be made without an inner policy."""
    if not (
        is_dataclass(cls)
        and isinstance(getattr(cls, "name", None), str)
        and hasattr(cls, "init")
        and hasattr(cls, "step")
    ):
        return False
    parameters = inspect.signature(cls).parameters.values()
    return all(p.default is not p.empty for p in parameters)
