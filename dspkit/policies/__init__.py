"""Scaling policies, one file each; a file in this folder is found without registration.

Each class is available as `dspkit.policies.<ClassName>`. Other packages offer policies by the entry-point group
`dspkit.policies`, notebooks by `register`. Files that begin with "_" are not offered; `_template.py` is the one to
copy.
"""

from __future__ import annotations

import inspect
import pkgutil
import warnings
from dataclasses import is_dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ..core import NotFoundError, Policy
from ..core.lazy import import_part
from ..core.policy import needs_of
from ..core.registry import Registry

if TYPE_CHECKING:
    import pandas as pd

P = TypeVar("P", bound=type)

_GUARDS = ("Bounded", "Cooldown", "Predictive", "RescaleBudget")  # they wrap another policy
_REQUESTS = ("ScaleIn", "ScaleOut")  # requests for machines to policies that act on demand
_FUNCTIONS = ("available", "get", "group", "register", "table", "unregister")


def available() -> dict[str, type[Policy]]:
    """Return the policy classes by name; `needs` of a class names the fields that its backend must be able to change.

    Files and entry points that cannot be imported are left out with a warning, and so is the second of two policies
    with the same name, in alphabetical order of the files. A policy whose libraries belong to an extra that is not
    installed is left out; `get` names the extra.

    Examples
    --------
    >>> sorted(available()["stela"].needs)
    ['parallelism', 'workers']
    """
    return _registry.available()


def get(name: str) -> type[Policy]:
    """Return the policy class of that name.

    Parameters
    ----------
    name : str
        One of the names of `available()`.

    Examples
    --------
    >>> get("static")().name
    'static'
    """
    try:
        return _registry.get(name)
    except NotFoundError:
        if isinstance(name, str) and name in {info.name for info in pkgutil.iter_modules(__path__)}:
            import_part(f".{name}", __name__)  # which says what is missing
        raise


GROUPS = ("scales", "places", "scales and places", "acts on request", "decides nothing")


def group(policy: Any) -> str:
    """Return what a policy, or a class of policies, decides: one of GROUPS.

    Parameters
    ----------
    policy : Policy or type
        The policy.

    Examples
    --------
    >>> [group(get(name)) for name in ("ds2", "odp", "odrp", "stela", "static")]
    ['scales', 'places', 'scales and places', 'acts on request', 'decides nothing']
    """
    needs = needs_of(policy)
    if hasattr(policy, "ask"):
        return GROUPS[3]
    if "parallelism" in needs or "workers" in needs:
        return GROUPS[2] if "placement" in needs or hasattr(policy, "places") else GROUPS[0]
    return GROUPS[1] if "placement" in needs else GROUPS[4]


def register(cls: P) -> P:
    """Offer a policy class in this process from now on, and return it.

    Parameters
    ----------
    cls : type
        A frozen dataclass with `name`, `init` and `step`, and a default for every field.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from dspkit import Decision, policies
    >>> @policies.register
    ... @dataclass(frozen=True)
    ... class Still:
    ...     name = "still"
    ...     def init(self, topology, seed=0): return None
    ...     def step(self, state, snapshot): return state, Decision(snapshot.deployment)
    >>> policies.get("still") is Still
    True
    >>> policies.unregister("still")
    """
    _registry.register(cls)
    return cls


def unregister(name: str) -> None:
    """Remove the policy that was registered under that name, if there is one.

    Parameters
    ----------
    name : str
        The policy's name.

    Examples
    --------
    >>> unregister("no such policy")
    """
    _registry.unregister(name)


def table() -> pd.DataFrame:
    """Return one row per policy: name, class, what it needs, its paper, and its docstring's first sentence.

    Examples
    --------
    >>> table().set_index("name").loc["ds2", ["class", "needs", "reference"]].tolist()
    ['DS2', 'parallelism', 'kalavri2018ds2']
    """
    import pandas as pd

    rows = []
    for name, cls in available().items():
        reference = getattr(cls, "reference", ())
        rows.append(
            {
                "name": name,
                "class": cls.__name__,
                "needs": ", ".join(sorted(needs_of(cls))),
                "reference": reference if isinstance(reference, str) else ", ".join(reference),
                "sentence": (inspect.getdoc(cls) or "").partition("\n\n")[0].replace("\n", " "),
            }
        )
    return pd.DataFrame(rows)


def defined_in(module: ModuleType) -> list[type[Policy]]:
    """Return the policies that `module`, or a module in it, defines and that can be created without arguments."""
    classes: list[type[Any]] = [c for c in vars(module).values() if inspect.isclass(c)]
    mine = [c for c in classes if f"{c.__module__}.".startswith(f"{module.__name__}.")]
    return [c for c in mine if not _wrong(c)]


def _builtin() -> dict[str, type[Policy]]:
    """Return the policies of this folder."""
    found: dict[str, type[Policy]] = {}
    home: dict[str, str] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name.startswith("_"):
            continue
        try:
            module = import_part(f".{info.name}", __name__)
        except NotFoundError:
            continue  # a library of an extra
        except Exception as error:  # a user's file may raise anything
            warnings.warn(f"policies/{info.name}.py is left out: {type(error).__name__}: {error}", stacklevel=5)
            continue
        for cls in defined_in(module):
            name: str = cls.name  # type: ignore[assignment]
            if name in found:
                both = f"{found[name].__name__} of policies/{home[name]}.py"
                warnings.warn(
                    f"{cls.__name__} of policies/{info.name}.py is left out: {both} is named {name!r} too", stacklevel=5
                )
                continue
            found[name], home[name] = cls, info.name
    return found


def _wrong(cls: Any) -> str | None:
    """Return the objection to a class, or None. Guards are not offered, as they need an inner policy."""
    if not inspect.isclass(cls):
        return "is no class"
    if not is_dataclass(cls):
        return "is no dataclass"
    if not isinstance(getattr(cls, "name", None), str):
        return "has no name"
    if missing := [method for method in ("init", "step") if not callable(getattr(cls, method, None))]:
        return f"has no {missing[0]}()"
    if bare := [p.name for p in inspect.signature(cls).parameters.values() if p.default is p.empty]:
        return f"cannot be made without {bare[0]}"
    return None


_registry: Registry[type[Policy]] = Registry("dspkit.policies", "policy", _builtin, _wrong)


def __getattr__(name: str) -> Any:
    """Return a policy class by its name, loaded on first use; the file is found by the name if possible."""
    if name == "__all__":
        return sorted({*_FUNCTIONS, *_GUARDS, *_REQUESTS, *(c.__name__ for c in available().values())})
    if name in _GUARDS:
        return getattr(import_module(".guards", __name__), name)
    if name in _REQUESTS:
        return getattr(import_module(".on_demand", __name__), name)
    if name[:1].isupper():
        for info in pkgutil.iter_modules(__path__):
            if info.name.replace("_", "") == name.lower():
                for cls in defined_in(import_part(f".{info.name}", __name__)):
                    if cls.__name__ == name:
                        return cls
        for cls in available().values():
            if cls.__name__ == name:
                return cls
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__getattr__("__all__")})
