"""How much a policy's knobs matter: one run for each setting, events lost against replica-seconds.

>>> from dspkit import sensitivity, topologies
>>> from dspkit.policies.fission import Fission
>>> frame = sensitivity.sweep(topologies.news_entities(), Fission(), {"upper": (1.0, 0.8)})
>>> bool(frame.lost[1] < frame.lost[0]), bool(frame.replica_seconds[1] > frame.replica_seconds[0])
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Any

from .core import Policy
from .errors import DspkitError, KnobError
from .events_lost import EventsLost, events_lost
from .history import History
from .knobs import knobs
from .loop import run
from .topologies import App

if TYPE_CHECKING:
    import pandas as pd

MEASURES = ("lost", "dropped", "waiting", "replica_seconds")


def play(app: App, policy: Policy, *, duration_s: float = 600.0, window_s: float = 1.0, **options: Any) -> History:
    """One run of `app` under `policy` from one instance each, in windows short enough for a policy that counts seconds.

    `options` go to the simulator.
    """
    if not isinstance(app, App):
        raise DspkitError(
            f"application {app!r:.60}", expected="one of topologies", fix="as in topologies.tweet_words()"
        )
    if not (isfinite(duration_s) and 0 < window_s <= duration_s):
        came = f"duration_s={duration_s}, window_s={window_s}"
        raise DspkitError(came, expected="0 < window_s <= duration_s", fix="at least one window")
    with app.simulator(window_s=window_s, **options) as backend:
        return run(policy, backend, steps=round(duration_s / window_s))


def sweep(app: App, policy: Any, axes: Mapping[str, Sequence[Any]], **options: Any) -> pd.DataFrame:
    """A run for each combination of knob values; one row each. Values that do not go together are left out.

    Columns: the knobs, `lost` (share of what was offered), `dropped`, `waiting`, `replica_seconds`, `rescalings`.
    `options` go to `play`.
    """
    return frame([measure(app, policy, point, **options) for point in points(policy, axes)], axes)


def points(policy: Any, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """All combinations of the values, each a change of the policy's knobs, that the policy takes."""
    known = {k.name for k in knobs(policy)} if is_dataclass(policy) else set()
    if not isinstance(axes, Mapping) or any(isinstance(v, str) or not isinstance(v, Iterable) for v in axes.values()):
        raise KnobError(f"a sweep over {axes!r}", expected="values by knob", fix='as in {"upper": (0.8, 1.0)}')
    if unknown := set(axes) - known or ({"nothing"} if not axes else set()):
        raise KnobError(f"a sweep over {sorted(unknown)}", expected=f"knobs: {sorted(known)}", fix="correct the name")
    found, wrong = [], None
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        try:
            replace(policy, **point)
        except KnobError as error:
            wrong = error
        else:
            found.append(point)
    if not found:
        raise wrong or KnobError("a sweep over no values", expected="at least one a knob", fix="name some")
    return found


def measure(app: App, policy: Any, point: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """One run with the knobs turned to `point`: these, what was lost, what it cost."""
    history = play(app, replace(policy, **point), **options)
    return {**point, **measures(events_lost(history)), "rescalings": sum(s.rescaled for s in history)}


def frame(rows: Sequence[Mapping[str, Any]], axes: Iterable[str]) -> pd.DataFrame:
    """Measures as a table; rows that have none yet are of knobs alone."""
    import pandas as pd

    return pd.DataFrame(rows, columns=[*axes, *MEASURES, "rescalings"])


def measures(counted: EventsLost) -> dict[str, float]:
    """Those of one run by their names in a sweep's table.

    >>> measures(EventsLost(200, 150, 30, 20, 1))["lost"]
    0.25
    """
    values = (counted.share, counted.dropped, counted.waiting, counted.replica_seconds)
    return dict(zip(MEASURES, values, strict=True))
