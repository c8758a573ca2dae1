"""The duration of a micro-batch, $T(n, k) = a + b n / k + c m$, learned from the batches that a query has run.

| symbol | is |
|---|---|
| n | records of the batch |
| k | slots that work on them at once, over the stages: the work divided by the time it takes them |
| m | tasks of the batch, over all stages |
| a | seconds that each batch costs: planning, logs of offsets, state stores, commits |
| b | seconds of one slot per record |
| c | seconds per task |

Lines are fitted by least absolute differences, because single batches take ten times as long as others. Batches of one
size cannot tell a from b; then b is the busy time of the tasks over their records, if the status store was read, and
otherwise both stay unknown. c needs batches in several numbers of tasks. Intervals come from a block bootstrap.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .observation import MicroBatch, whole_batches

if TYPE_CHECKING:
    import numpy as np

FEWEST = 8  # batches of a fit
_MOST = 500  # the newest batches, which have the present costs
_DRAWS = 300
_VARIES = 1.5  # largest over smallest n/k, from which on a slope is fitted
_SEED = 0


@dataclass(frozen=True)
class ValueInterval:
    """A value with the central interval of its bootstrap.

    Examples
    --------
    >>> str(ValueInterval(0.1, 0.08, 0.13))
    '0.1 [0.08, 0.13]'
    """

    value: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.value:.3g} [{self.low:.3g}, {self.high:.3g}]"


@dataclass(frozen=True)
class BatchTime:
    """The fitted duration of a micro-batch.

    Parameters
    ----------
    a, b, c : ValueInterval or None
        Seconds per batch, per record (of one slot) and per task, with 95 % intervals; None where the batches cannot
        tell it.
    batches : int
        Batches that it was fitted to.
    slots : int
        Slots of the cluster while they ran.
    work : tuple of (float, int)
        Per stage its share of the work, and its tasks, which limit the slots that it uses.
    median_rows : float
        Median records of a batch.
    median_s : float
        Median duration.
    source : {"fit", "tasks", "none"}
        Whether b is the slope over batches of several sizes, or the busy time of tasks.
    note : str
        Which terms are unknown, and why.
    draws : array
        Redrawn (a, b, c).
    residuals : array
        Durations over the fitted ones.

    Examples
    --------
    >>> batches = [MicroBatch("q", i, 10.0 * i, 10.0 * i + 0.1 + 0.001 * n / 4, rows=n)
    ...            for i, n in enumerate([400, 800, 1600, 3200] * 4)]
    >>> model = fit_batch_time(batches, slots=4)
    >>> round(model.a.value, 3), round(model.b.value, 6), round(model.seconds(8000, 8).value, 3)
    (0.1, 0.001, 1.1)
    """

    a: ValueInterval | None
    b: ValueInterval | None
    c: ValueInterval | None
    batches: int
    slots: int
    work: tuple[tuple[float, int], ...]
    median_rows: float
    median_s: float
    source: str
    note: str
    draws: Any
    residuals: Any

    @property
    def known(self) -> bool:
        """True if a and b are known, so that other sizes and slots can be predicted."""
        return self.a is not None and self.b is not None

    def slots_used(self, slots: float, tasks: Sequence[int] | None = None) -> float:
        """Return the slots that share the work on average: a stage of fewer tasks leaves some idle."""
        limits = [k for _, k in self.work] if tasks is None else list(tasks)
        return slots_used(slots, [share for share, _ in self.work], limits)

    def drawn(self, rows: float, slots: float, tasks: Sequence[int] | None = None) -> np.ndarray[Any, Any]:
        """Return the duration in each redrawn fit; the first is the fit itself."""
        m = sum(tasks if tasks is not None else (k for _, k in self.work))
        x = rows / self.slots_used(slots, tasks)
        made: np.ndarray[Any, Any] = self.draws[:, 0] + self.draws[:, 1] * x + self.draws[:, 2] * m
        return made.clip(1e-3)

    def seconds(
        self, rows: float, slots: float, *, level: float = 0.9, tasks: Sequence[int] | None = None
    ) -> ValueInterval:
        """Return the duration of one batch, with an interval in which it lies with probability `level`.

        Parameters
        ----------
        rows : float
            Records of the batch.
        slots : float
            Slots of the cluster.
        level : float
            Probability of the interval.
        tasks : sequence of int, optional
            Tasks per stage.
        """
        import numpy as np

        each = self.drawn(rows, slots, tasks)
        spread = (each[:, None] * self.residuals[None, :]).ravel()
        low, high = np.quantile(spread, [(1 - level) / 2, (1 + level) / 2])
        return ValueInterval(float(each[0]), float(low), float(high))


def slots_used(slots: float, shares: Sequence[float], tasks: Sequence[int]) -> float:
    """Return work over time of stages that take turns, each on as many slots as it has tasks, at most `slots`.

    Examples
    --------
    >>> slots_used(8, [0.5, 0.5], [2, 8])
    3.2
    """
    if not shares:
        return float(slots)
    total = sum(shares)
    return total / sum(share / min(slots, max(1, k)) for share, k in zip(shares, tasks, strict=True))


def fit_batch_time(batches: Sequence[MicroBatch], slots: int) -> BatchTime:
    """Fit the duration of batches.

    Examples
    --------
    >>> fit_batch_time([], slots=4).note
    '8 batches are needed, 0 were seen'
    """
    import numpy as np

    every = whole_batches(batches)
    chosen = (every[1:] if len(every) > FEWEST else every)[-_MOST:]
    work = work_of(chosen)
    n = np.array([b.rows for b in chosen], float)
    t = np.array([b.lasted for b in chosen], float)
    medians = (float(np.median(n)), float(np.median(t))) if chosen else (0.0, 0.0)
    if len(chosen) < FEWEST:
        note = f"{FEWEST} batches are needed, {len(chosen)} were seen"
        return _unknown(len(chosen), slots, work, medians, note)
    k, m, b_tasks = (np.array(column, float) for column in zip(*(_load(b, slots, work) for b in chosen), strict=True))
    x = n / k
    varied = x.max() >= _VARIES * max(1e-12, x.min()) and len(set(np.round(x, 9))) > 2
    by_tasks = len(set(m)) > 1 and min(np.unique(m, return_counts=True)[1]) >= 3
    measured = b_tasks[np.isfinite(b_tasks)]
    rng = np.random.default_rng(_SEED)
    blocks = list(_blocks(len(chosen), rng))
    redrawn = [np.arange(len(t)), *blocks]
    draws, source, note = None, "none", ""
    if varied:
        design = np.stack([np.ones_like(x), x, *([m] if by_tasks else [])], axis=1)
        draws, source = _not_negative(design, t, redrawn), "fit"
        low, high = np.quantile(draws[:, 1], [0.025, 0.975])
        if len(measured) >= 3 and (low <= 0 or high - low > draws[0, 1]):
            draws, note = None, "the durations vary too much for a slope, so b is the busy time of the tasks"
    elif len(measured) >= 3:
        note = "all batches have about the same size, so b is the busy time of the tasks"
    if draws is None and len(measured) >= 3:
        draws, source = np.array([_from_tasks(x[i], t[i], b_tasks[i]) for i in redrawn]), "tasks"
    if draws is None:
        note = "all batches have about the same size, so that fixed and proportional time cannot be told apart"
        return _unknown(len(chosen), slots, work, medians, note)
    used = draws.shape[1] == 3
    if draws.shape[1] == 2:
        draws = np.column_stack([draws, np.zeros(len(draws))])
    fitted = draws[0, 0] + draws[0, 1] * x + draws[0, 2] * m
    low, high = np.quantile(draws, [0.025, 0.975], axis=0)
    a, b, c = (ValueInterval(float(draws[0, i]), float(low[i]), float(high[i])) for i in range(3))
    residuals = t / fitted.clip(1e-3)
    return BatchTime(a, b, c if used else None, len(chosen), slots, work, *medians, source, note, draws, residuals)


def _unknown(count: int, slots: int, work: Any, medians: tuple[float, float], note: str) -> BatchTime:
    return BatchTime(None, None, None, count, slots, work, *medians, "none", note, None, None)


def work_of(batches: Sequence[MicroBatch]) -> tuple[tuple[float, int], ...]:
    """Return each stage's share of the busy time, and its tasks in the last batch whose stages are known."""
    known = [b for b in batches if b.stages]
    last = [b for b in known if len(b.stages) == len(known[-1].stages)] if known else []
    busy = [sum(b.stages[i].busy_s for b in last) for i in range(len(last[-1].stages))] if last else []
    total = sum(busy)
    return tuple((s / total, run.tasks) for s, run in zip(busy, last[-1].stages, strict=True)) if total > 0 else ()


def _load(batch: MicroBatch, slots: int, work: tuple[tuple[float, int], ...]) -> tuple[float, float, float]:
    """Return the slots that shared the batch, its tasks, and the busy time of its tasks per record (or NaN)."""
    slots = batch.slots or slots
    if batch.stages:
        busy = [run.busy_s for run in batch.stages]
        if sum(busy) > 0:
            k = slots_used(slots, busy, list(batch.sizes))
            return k, sum(batch.sizes), sum(busy) / (batch.rows or 1)
    k = slots_used(slots, [share for share, _ in work], [tasks for _, tasks in work])
    return k, sum(tasks for _, tasks in work), math.nan


def _from_tasks(x: np.ndarray[Any, Any], t: np.ndarray[Any, Any], b: np.ndarray[Any, Any]) -> tuple[float, float]:
    import numpy as np

    found = b[np.isfinite(b)]
    slope = float(np.median(found)) if len(found) else 0.0
    return max(0.0, float(np.median(t - slope * x))), slope


def _not_negative(
    design: np.ndarray[Any, Any], t: np.ndarray[Any, Any], redrawn: Sequence[np.ndarray[Any, Any]]
) -> np.ndarray[Any, Any]:
    """Fit each redrawn recording; a term that would be negative is left out, the most negative one first."""
    import numpy as np

    chosen, scale = np.stack(redrawn), np.abs(design).max(axis=0)
    made = np.zeros((len(chosen), design.shape[1]))

    def fit(rows: np.ndarray[Any, Any], columns: list[int]) -> None:
        if not columns or not len(rows):
            return
        found = _least_absolute(design[chosen[rows]][:, :, columns], t[chosen[rows]])
        fine = (found >= 0).all(axis=1)
        made[rows[fine][:, None], np.array(columns)] = found[fine]
        worst = (found * scale[columns]).argmin(axis=1)
        for j in range(len(columns)):
            fit(rows[~fine & (worst == j)], columns[:j] + columns[j + 1 :])

    fit(np.arange(len(chosen)), list(range(design.shape[1])))
    return made


def _least_absolute(design: np.ndarray[Any, Any], t: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Minimise sums of absolute differences, of all recordings at once, by least squares that are weighted again."""
    import numpy as np

    scale = np.abs(design).max(axis=(0, 1))
    x, ridge = design / scale, 1e-12 * np.eye(design.shape[2])
    weights = np.ones_like(t)
    floor = 1e-4 * max(1e-9, float(np.median(np.abs(t))))
    made = np.zeros((len(x), x.shape[2]))
    for _ in range(40):
        weighted = x * weights[:, :, None]
        squares = np.swapaxes(weighted, 1, 2) @ x
        squares += ridge * np.trace(squares, axis1=1, axis2=2)[:, None, None]
        made = np.linalg.solve(squares, np.einsum("dnp,dn->dp", weighted, t)[:, :, None])[:, :, 0]
        weights = 1 / np.maximum(np.abs(t - np.einsum("dnp,dp->dn", x, made)), floor)
    fitted: np.ndarray[Any, Any] = made / scale
    return fitted


def _blocks(count: int, rng: np.random.Generator) -> Any:
    """Indices of recordings that are redrawn in blocks of consecutive batches, which resemble each other."""
    import numpy as np

    length = max(1, round(count ** (1 / 3)))
    for _ in range(_DRAWS):
        starts = rng.integers(0, count - length + 1, -(-count // length))
        yield np.concatenate([np.arange(s, s + length) for s in starts])[:count]
