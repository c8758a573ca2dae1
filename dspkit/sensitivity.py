"""How much a policy's knobs matter: one run for each setting, events lost against replica-seconds.

>>> from dspkit import sensitivity, topologies
>>> from dspkit.policies.fission import Fission
>>> frame = sensitivity.sweep(topologies.news_entities(), Fission(), {"mid_replicas": (0, 8)})
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
    import pandas as pd

    known = {k.name for k in knobs(policy)} if is_dataclass(policy) else set()
    if not isinstance(axes, Mapping) or any(isinstance(v, str) or not isinstance(v, Iterable) for v in axes.values()):
        raise KnobError(f"a sweep over {axes!r}", expected="values by knob", fix='as in {"upper": (0.8, 1.0)}')
    if unknown := set(axes) - known or ({"nothing"} if not axes else set()):
        raise KnobError(f"a sweep over {sorted(unknown)}", expected=f"knobs: {sorted(known)}", fix="correct the name")
    rows, wrong = [], None
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        try:
            turned = replace(policy, **point)
        except KnobError as error:
            wrong = error
            continue
        history = play(app, turned, **options)
        rows.append({**point, **measures(events_lost(history)), "rescalings": sum(s.rescaled for s in history)})
    if not rows:
        raise wrong or KnobError("a sweep over no values", expected="at least one a knob", fix="name some")
    columns = [*axes, "lost", "dropped", "waiting", "replica_seconds", "rescalings"]
    return pd.DataFrame(rows, columns=columns)


def measures(counted: EventsLost) -> dict[str, float]:
    return {
        "lost": counted.share,
        "dropped": counted.dropped,
        "waiting": counted.waiting,
        "replica_seconds": counted.replica_seconds,
    }
