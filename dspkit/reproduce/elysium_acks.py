"""ELYSIUM's evaluation where only what is acknowledged counts: `python -m dspkit.reproduce.elysium_acks`.

The paper's throughput is the rate of acked records. What its Storm does with the others is not printed, but in the
authors' public code (github.com/FLombardi-PhD: `Storm-topologies`, `ELYSIUM-Storm-autoscaler`) and in Storm's. The rule
below was written down before a run was looked at:

| there | here |
|---|---|
| ackers are on; the timeout is Storm's 30 s (T2 sets it, T1 leaves it) | `TIMEOUT_S` |
| Storm's map of pending records has two buckets and turns each 30 s | a record fails 30 to 60 s after it was sent |
| a rebalance kills the workers one second after it was asked for | `pause_kind="restart"`: what is inside is lost |
| the queue forgets what it hands over (AUTO_ACKNOWLEDGE), `fail()` only logs | nothing is sent a second time |
| no bound on pending records (`setMaxSpoutPending` is commented out) | none |
| the queue before the source keeps what comes during a restart | the source's log; waiting there is not timed |

So a record counts once, when it is done, unless it was lost or failed. Policies see none of that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..core import Policy
from ..history import History
from ..loop import run
from ..scores import nodes_saved, rescales
from ..workload import Workload
from .elysium import MINUTE, NODES, PAPER, RIVALS, WINDOW_S, app, policies, started
from .elysium_loads import LEVELS, MINUTES, laid_over, load, recorded
from .elysium_recorded import YEAR, rivals

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

    Array = np.ndarray[Any, np.dtype[Any]]

TIMEOUT_S = 30.0
FAILS = ("in turns", "at once", "never")  # when a record fails: Storm's buckets, right after the timeout, not at all


def acked(ticks: pd.DataFrame, fails: str = "in turns", timeout_s: float = TIMEOUT_S) -> Array:
    """Records acknowledged in each tick of a simulation that kept its ticks: first in, first out.

    Those that end or are lost in a tick are numbered on from those before; they left the log when as many had.
    """
    import numpy as np

    t, lost = ticks.t.to_numpy(), ticks.lost.to_numpy()
    gone, left = ticks.ended.to_numpy() + lost, (ticks.offered - ticks.lag).to_numpy()
    first = np.concatenate(([0.0], gone[:-1])) + np.diff(lost, prepend=0.0)  # what is lost goes when the tick begins
    if fails == "never":
        return np.maximum(0.0, gone - first)
    since = t - timeout_s if fails == "at once" else (np.floor(t / timeout_s + 1e-9) - 1) * timeout_s
    failed = np.interp(since, np.concatenate(([0.0], t)), np.concatenate(([0.0], left)))
    return np.maximum(0.0, gone - np.maximum(first, failed))


def degradation(ticks: pd.DataFrame, done: Array, window_s: float = WINDOW_S) -> float:
    """Mean of |in - acked| / in over windows in which anything came."""
    import numpy as np

    window = np.ceil(ticks.t.to_numpy() / window_s - 1e-9).astype(int) - 1
    came = np.bincount(window, np.diff(ticks.offered.to_numpy(), prepend=0.0))
    thr = np.bincount(window, done)
    some = came > 1e-9 * window_s
    return float(np.mean(np.abs(came - thr)[some] / came[some]))


def play(
    name: str, trace: Workload, policy: Policy, *, pause_s: float = 6.5, minutes: float, seed: int = 0,
    pause_kind: str = "restart",
) -> tuple[History, pd.DataFrame]:  # fmt: skip
    """One run of a policy, and its ticks."""
    now, begin = app(name), started(name, trace.rate(0.0))
    plant = replace(now.plant, pause_s=pause_s, pause_kind=pause_kind)
    now = replace(now, plant=plant, workers=begin.workers)
    job = now.simulator(trace, parallelism=begin.parallelism, seed=seed, window_s=WINDOW_S, keep_ticks=True)
    return run(policy, job, steps=round(minutes * MINUTE / WINDOW_S), seed=seed), job.ticks
