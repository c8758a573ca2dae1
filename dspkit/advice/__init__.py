"""Advice for a job that somebody already runs: where is the bottleneck, what do the policies say, how sure, and why.

`dspkit.advise(history)` is the one call; docs/advice.md says how its numbers come about.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import KnobError, MetricError
from ..frozen import FrozenMap
from ..history import History
from .advice import Advice
from .ask import Recommendation, ask
from .defaults import chosen
from .evidence import evidence
from .needs import Known, Needs, needs
from .outlook import After, Outlook, outlook
from .settings import ENGINES, Settings, engine_of

if TYPE_CHECKING:
    from ..loaders import Loader

__all__ = ["ENGINES", "Advice", "After", "Known", "Needs", "Outlook", "Recommendation", "Settings", "advise"]


def advise(
    history_or_loader: History | Loader,
    *,
    target_latency: float | None = None,
    policies: Any = None,
    engine: str | None = None,
) -> Advice:
    """What the policies make of a recorded job, and what would come of it.

    `target_latency` is the mean latency to meet, in seconds. `policies` are names, policies, or a mapping of these;
    by default all that make sense on a recording. `engine` is "flink", "spark", "storm" or "dspkit", whose settings
    are named; by default what the recording says. The windows that count are those of the last deployment under the
    last load. What a policy lacks, or what goes wrong in it, stands in its row.

    >>> from dspkit import advise, run, topologies, workload
    >>> from dspkit.policies.static import Static
    >>> app = topologies.word_count()
    >>> history = run(Static(), app.simulator(workload.Constant(140e3), parallelism=3), steps=20)
    >>> advice = advise(history, policies=["ds2"])
    >>> advice.bottleneck, advice["ds2"].says
    ('count', 'source 3 → 2, flat_map 3 → 2, count 3 → 5, sink 3 → 4')
    """
    history, problems = _read(history_or_loader)
    if target_latency is not None and not (
        isinstance(target_latency, (int, float))
        and not isinstance(target_latency, bool)
        and 0 < target_latency < math.inf
    ):
        raise KnobError(f"target_latency={target_latency!r}", expected="seconds above 0", fix="as in 0.5, or leave out")
    engine = engine_of(history, engine)
    found = evidence(history)
    needed = needs(history.topology, found.windows)
    asked = chosen(policies, found, target_latency)
    told = tuple(ask(name, policy, history.topology, found) for name, policy in asked.items())
    return Advice(
        history=history,
        evidence=found,
        needs=needed,
        outlook=outlook(history, needed, found.pooled),
        recommendations=told,
        engine=engine,
        target_latency=None if target_latency is None else float(target_latency),
        problems=FrozenMap(problems),
    )


def _read(given: Any) -> tuple[History, Mapping[str, int]]:
    """The history, and what was dropped while it was loaded."""
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
            f"a loader that gives {type(history).__name__}", expected="a History", fix="see loaders.Loader"
        )
    problems = getattr(given, "problems", {})
    return history, dict(problems) if isinstance(problems, Mapping) else {}
