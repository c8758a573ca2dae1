"""Advice for a running job: the bottleneck, the recommendations of the policies, their confidence and reasons.

`dspkit.advise(history)` is the one call; docs/advice.md explains its numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..core import FrozenMap, History, MetricError
from ..core.validation import number
from .advice import Advice
from .evidence import evidence
from .needs import IntervalEstimate, Needs, needs
from .outlook import After, Outlook, outlook
from .recommendations import Recommendation, ask, chosen
from .settings import ENGINES, EngineSettings, engine_of

if TYPE_CHECKING:
    from ..loaders import Loader

__all__ = [
    "ENGINES",
    "Advice",
    "After",
    "EngineSettings",
    "IntervalEstimate",
    "Needs",
    "Outlook",
    "Recommendation",
    "advise",
]


def advise(
    history_or_loader: History | Loader,
    *,
    target_latency_s: float | None = None,
    policies: Any = None,
    engine: str | None = None,
) -> Advice:
    """Return the policies' recommendations for a recorded job, with the predicted effect of each.

    The windows of the last deployment under the last load count. A missing input of a policy, or an error in it, is
    reported in its row.

    Parameters
    ----------
    history_or_loader : History or Loader
        The recorded job, or a loader that reads it.
    target_latency_s : float, optional
        The mean latency to meet, in seconds.
    policies : str, Policy, iterable or mapping of these, optional
        The policies to run, by default all that make sense on a recording.
    engine : {"flink", "spark", "storm", "dspkit"}, optional
        The engine whose settings are named, by default the one that the recording names.

    Returns
    -------
    Advice
        Sentences, data frames and figures; `report()` writes them as one HTML file.

    Examples
    --------
    >>> from dspkit import advise, apps, run, workload
    >>> from dspkit.policies.static import Static
    >>> app = apps.word_count()
    >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> advice = advise(history, policies=["ds2"])
    >>> advice.bottleneck, advice["ds2"].says
    ('count', 'source 3 → 2, flat_map 3 → 2, count 3 → 5, sink 3 → 4')
    """
    history, problems = _read(history_or_loader)
    if target_latency_s is not None:
        number(target_latency_s, "target_latency_s", 0, above=True, fix="pass seconds, as in 0.5, or leave it out")
    if history.about.get("application") == "batch":
        raise MetricError(
            "the log of a batch application, in which no streaming query ran",
            expected="a job into which records keep flowing",
            fix="its jobs end by themselves, so that no rate has to be kept up with and there is nothing to advise",
        )
    engine = engine_of(history, engine)
    found = evidence(history)
    needed = needs(history.topology, found.windows)
    asked = chosen(policies, found, target_latency_s)
    told = tuple(ask(name, policy, history.topology, found) for name, policy in asked.items())
    return Advice(
        history=history,
        evidence=found,
        needs=needed,
        outlook=outlook(history, needed, found.pooled),
        recommendations=told,
        engine=engine,
        target_latency_s=None if target_latency_s is None else float(target_latency_s),
        problems=FrozenMap(problems),
    )


def _read(given: Any) -> tuple[History, Mapping[str, int]]:
    """Return the history, and the readings dropped while it was loaded."""
    if isinstance(given, History):
        dropped = given.about.get("dropped", {})
        return given, dropped if isinstance(dropped, Mapping) else {}
    if isinstance(given, type) or not callable(getattr(given, "history", None)):
        raise MetricError(
            repr(given)[:80], expected="a History or a loader", fix="as in advise(loaders.Table('metrics.csv', ...))"
        )
    history = given.history()
    if not isinstance(history, History):
        raise MetricError(
            f"a loader that returns {type(history).__name__}", expected="a History", fix="see loaders.Loader"
        )
    problems = getattr(given, "problems", {})
    return history, dict(problems) if isinstance(problems, Mapping) else {}
