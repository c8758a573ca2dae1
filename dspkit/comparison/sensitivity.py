"""The sensitivity of a policy to its knobs: one run per setting, lost events against replica-seconds.

>>> from dspkit.comparison import sensitivity
>>> from dspkit import apps
>>> from dspkit.policies.fission import Fission
>>> frame = sensitivity.sweep(apps.news_entities(), Fission(), {"scale_out_above": (1.0, 0.8)})
>>> bool(frame.lost[1] < frame.lost[0]), bool(frame.replica_seconds[1] > frame.replica_seconds[0])
(True, True)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import is_dataclass, replace
from itertools import product
from math import isfinite
from typing import TYPE_CHECKING, Any

from ..apps import App
from ..core import ArgumentError, History, NotFoundError, Policy, knobs_of
from ..experiment import run
from .scores import EventsLost, events_lost

if TYPE_CHECKING:
    import pandas as pd


MEASURES = ("lost", "dropped", "waiting", "replica_seconds")


def play_policy(
    app: App, policy: Policy, *, duration_s: float = 600.0, window_s: float = 1.0, **options: Any
) -> History:
    """Return a run of `app` under `policy`, from one instance per operator, in windows of one second by default.

    `options` are passed to the simulator.
    """
    if not isinstance(app, App):
        raise NotFoundError(f"application {app!r:.60}", expected="an App", fix="as in apps.tweet_words()")
    if not (isfinite(duration_s) and 0 < window_s <= duration_s):
        got = f"duration_s={duration_s}, window_s={window_s}"
        raise ArgumentError(got, expected="0 < window_s <= duration_s", fix="at least one window")
    return run(policy, app, steps=round(duration_s / window_s), window_s=window_s, **options)


def sweep(app: App, policy: Any, axes: Mapping[str, Sequence[Any]], **options: Any) -> pd.DataFrame:
    """Return a table with one run per combination of knob values; invalid combinations are left out.

    Columns: the knobs, `lost` (share of the offered events), `dropped`, `waiting`, `replica_seconds`, `rescalings`.
    `options` are passed to `play_policy`.
    """
    return frame([measure(app, policy, point, **options) for point in points(policy, axes)], axes)


def points(policy: Any, axes: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return all combinations of the values that are valid knobs of the policy."""
    known = {k.name for k in knobs_of(policy)} if is_dataclass(policy) else set()
    if not isinstance(axes, Mapping) or any(isinstance(v, str) or not isinstance(v, Iterable) for v in axes.values()):
        raise ArgumentError(
            f"a sweep over {axes!r}", expected="values by knob", fix='as in {"scale_out_above": (0.8, 1.0)}'
        )
    if unknown := set(axes) - known or ({"nothing"} if not axes else set()):
        raise ArgumentError(
            f"a sweep over {sorted(unknown)}", expected=f"knobs: {sorted(known)}", fix="name knobs of the policy"
        )
    found, wrong = [], None
    for values in product(*axes.values()):
        point = dict(zip(axes, values, strict=True))
        try:
            replace(policy, **point)
        except ArgumentError as error:
            wrong = error
        else:
            found.append(point)
    if not found:
        raise wrong or ArgumentError("a sweep over no values", expected="at least one per knob", fix="name some")
    return found


def measure(app: App, policy: Any, point: Mapping[str, Any], **options: Any) -> dict[str, Any]:
    """Return the row of a run with the knobs of `point`: knobs, lost events and cost."""
    history = play_policy(app, replace(policy, **point), **options)
    return {**point, **measures(events_lost(history)), "rescalings": sum(s.rescaled for s in history)}


def frame(rows: Sequence[Mapping[str, Any]], axes: Iterable[str]) -> pd.DataFrame:
    """Return the rows as a table; rows without measures have knobs only."""
    import pandas as pd

    return pd.DataFrame(rows, columns=[*axes, *MEASURES, "rescalings"])


def measures(counted: EventsLost) -> dict[str, float]:
    """Return the measures of a run by their columns in the table.

    >>> measures(EventsLost(200, 150, 30, 20, 1))["lost"]
    0.25
    """
    values = (counted.share, counted.dropped, counted.waiting, counted.replica_seconds)
    return dict(zip(MEASURES, values, strict=True))
