"""Applications: one graph each, with a simulated side (costs and load), a live side (functions and input), or both.

Every application is reachable as `dspkit.apps.<name>`. Other packages add theirs by the entry-point group
`dspkit.apps`, a notebook by `register`. Applications of papers without functions of their own run live with synthetic
operators.

>>> from dspkit import apps, policies, run
>>> app = apps.word_count()
>>> run(policies.get("ds2")(), app.simulator(), steps=4)[-1].snapshot.deployment.parallelism
{'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from ..core.registry import Registry
from .app import App
from .autrascale import case_study, crowded_word_count, query5, query11, word_count, yahoo
from .elysium import rolling_top_words, sentiment
from .fission import news_entities, tweet_branches, tweet_words
from .live import Live, Rehearsal, audit, rehearse
from .nardelli import detector, log_processing, storm_word_count, tag_and_count
from .nexmark import nexmark_q1, nexmark_q5, nexmark_q7, nexmark_q8, nexmark_q11
from .stela import diamond, linear, network_monitoring, page_load, processing, star
from .taxi_routes import TaxiDays, taxi

Make = Callable[..., App]

M = TypeVar("M", bound=Callable[..., Any])

__all__ = [
    "App",
    "Live",
    "Rehearsal",
    "TaxiDays",
    "audit",
    "available",
    "case_study",
    "crowded_word_count",
    "detector",
    "diamond",
    "get",
    "linear",
    "log_processing",
    "network_monitoring",
    "news_entities",
    "nexmark_q1",
    "nexmark_q5",
    "nexmark_q7",
    "nexmark_q8",
    "nexmark_q11",
    "page_load",
    "processing",
    "query5",
    "query11",
    "register",
    "rehearse",
    "rolling_top_words",
    "sentiment",
    "star",
    "storm_word_count",
    "tag_and_count",
    "taxi",
    "tweet_branches",
    "tweet_words",
    "unregister",
    "word_count",
    "yahoo",
]
# and the applications of other packages: see __getattr__


def available() -> dict[str, Make]:
    """Return every application by its name, each as a function that makes it.

    Examples
    --------
    >>> app = available()["yahoo"]()
    >>> app.simulated, app.live.records
    (True, 'events')
    """
    return _registry.available()


def get(name: str) -> Make:
    """Return the function that makes the application of that name.

    Parameters
    ----------
    name : str
        One of the names of `available()`.

    Examples
    --------
    >>> get("star")().topology.sources
    ('left', 'right')
    """
    make: Make = _registry.get(name)
    return make


def register(make: M) -> M:
    """Offer an application from now on, in this process, and return the function that makes it.

    Parameters
    ----------
    make : callable
        Returns an `App`, and needs no arguments. The application is found under the function's name.

    Examples
    --------
    >>> from dspkit import apps, workload
    >>> @apps.register
    ... def calm_star():
    ...     return apps.star().under(workload.Constant(100))
    >>> apps.get("calm_star") is calm_star
    True
    >>> apps.unregister("calm_star")
    """
    _registry.register(make, getattr(make, "__name__", None))
    return make


def unregister(name: str) -> None:
    """Remove the application that was registered under that name, if there is one.

    Parameters
    ----------
    name : str
        The application's name.

    Examples
    --------
    >>> unregister("no such application")
    """
    _registry.unregister(name)


def _builtin() -> dict[str, Make]:
    return {name: make for name, make in globals().items() if _makes_app(make)}


def _makes_app(thing: Any) -> bool:
    return inspect.isfunction(thing) and thing.__annotations__.get("return") == App.__name__


def _wrong(thing: Any) -> str | None:
    if not callable(thing) or inspect.isclass(thing):
        return "is not a function that makes an application"
    needed = [p.name for p in inspect.signature(thing).parameters.values() if p.default is p.empty and p.kind < 2]
    return f"needs {', '.join(needed)}" if needed else None


_registry: Registry[Any] = Registry("dspkit.apps", "application", _builtin, _wrong)


def __getattr__(name: str) -> Any:
    if not name.startswith("_") and name in (found := available()):
        return found[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *available()})
