r"""ContTune: all operators grow until none is back-pressured; each then shrinks to its rate [lian2023conttune].

| paper | here |
|---|---|
| $PA(p)$, $H_t$ | `history`: records/s that p instances would do if always busy, by operator and p |
| $\hat\lambda_i$ | rate at which records arrive while nothing is back-pressured; offered rate of a source |
| $p_{acq}$ | least p whose mean of the Gaussian process is $\lambda_i$ or more (Eq. 5) |
| $p_{lin}$ | `linear`: $\lceil\lambda_i/(PA(p)/p)\rceil$ at the present p, as DS2 does |
| $\alpha$, K | `alpha`, `recent` |
| coreMinThr, coreMaxThr, decisionThr | `scale_in_below`, `scale_out_above`, `decision_threshold` |

Algorithm 1: while the job is under-provisioned, all operators get $p_{max}$, the most seen, which doubles if they have
it. Then Algorithm 2 gives each $p_{acq}$ if that is within $\alpha$ of a p in its history, and $p_{lin}$ otherwise.
If the job falls behind after that at the same load, Algorithm 2 alone is repeated, with the rates that it had.

The process is that of the authors' program: mean zero, a squared exponential kernel of the greatest likelihood; the
noise is found with it, where the program has next to none, and an operator that has been seen at one parallelism only
is tuned linearly. The paper has no defaults for its thresholds. CPU is that of the busiest operator rather than of
machines: a full operator is under-provisioned also where its machine has cores left. Readings not taken: constrained
expected improvement, which the paper rejects; levels between whole numbers, which the program computes and rounds up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, FrozenMap, PolicyKnobs, Snapshot, Topology, knob
from ._measurements import fullest, mean_use, signal_knob

History = Mapping[str, Mapping[int, tuple[float, ...]]]  # records/s by operator and parallelism, the latest last

_NOISES = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)  # variances of a measured value, relative to that of the process
_SAME = 1e-9  # tolerance of rounding errors
_LOAD = 0.05  # change of the source rates from which on the load is another one


class ContTuneState(NamedTuple):
    """The values measured by operator and parallelism, the greatest parallelism, and the rates of the last tuning."""

    topology: Topology
    last_deployment: Deployment | None = None
    resting: int = 0
    history: History = FrozenMap()
    most: int = 0  # p_max
    big: bool = False  # the Big phase is not over
    tuned_for: Mapping[str, float] = FrozenMap()  # rates by operator
    offered: float | None = None  # sum of the source rates then


@lru_cache(256)
def fitted(seen: tuple[tuple[int, float], ...], most: int) -> tuple[float, ...]:
    """Return the mean of the process at 1 to `most` instances, given what some numbers of instances can do.

    >>> [round(x, -1) for x in fitted(((1, 100.0), (2, 200.0), (4, 400.0)), 4)]
    [100.0, 200.0, 300.0, 400.0]
    """
    import numpy as np

    x, y = np.array([[p for p, _ in seen], [rate for _, rate in seen]], dtype=float)
    best, n = None, len(x)
    for length, noise in product(np.geomspace(0.5, 2.0 * max(2.0, float(most)), 30), _NOISES):
        near = np.exp(-0.5 * ((x[:, None] - x) / length) ** 2) + noise * np.eye(n)
        lower = np.linalg.cholesky(near)
        weights = np.linalg.solve(lower.T, np.linalg.solve(lower, y))
        likelihood = -0.5 * n * math.log(max(float(y @ weights), 1e-300)) - float(np.log(np.diag(lower)).sum())
        if best is None or likelihood > best[0]:
            best = likelihood, length, weights
    assert best is not None
    grid = np.arange(1, most + 1)
    means = np.exp(-0.5 * ((grid[:, None] - x) / best[1]) ** 2) @ best[2]
    return tuple(float(m) for m in means)


def acquired(seen: Mapping[int, float], rate: float, most: int) -> int | None:
    """Return the least parallelism whose expected rate is enough, of at most `most`; None if there is none.

    >>> acquired({1: 100.0, 2: 200.0, 4: 400.0}, 250.0, 4)
    3
    """
    means = fitted(tuple(sorted(seen.items())), most)
    return next((p for p, mean in enumerate(means, 1) if mean >= rate * (1 - _SAME)), None)


def linear(seen: Mapping[int, float], now: int, rate: float) -> int:
    """Return the parallelism for a rate if each instance does as much as one does now, or at the nearest level seen.

    >>> linear({2: 200.0}, 2, 450.0)
    5
    """
    at = min(seen, key=lambda p: (abs(p - now), p))
    return max(1, math.ceil(rate / (seen[at] / at) - _SAME))


def chosen(seen: Mapping[int, float], now: int, rate: float, most: int, alpha: int) -> tuple[int, str]:
    """Return the parallelism of one operator by Algorithm 2, and which way it was found.

    >>> chosen({1: 100.0, 4: 380.0}, 4, 250.0, 4, alpha=0)
    (3, 'linear')
    """
    found = acquired(seen, rate, most) if len(seen) > 1 else None  # one value shows no slope
    if found is not None and min(abs(found - p) for p in seen) <= alpha:
        return found, "process"
    return linear(seen, now, rate), "linear"


@dataclass(frozen=True)
class ContTune(PolicyKnobs):
    """Double all operators until none is back-pressured, then give each the fewest instances known to be enough."""

    name: ClassVar[str] = "conttune"
    main_knobs: ClassVar[tuple[str, ...]] = ("alpha", "scale_in_below", "decision_threshold")
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[tuple[str, ...]] = ("lian2023conttune", "kalavri2018ds2")
    alpha: int = knob(
        3,
        "instances from a parallelism that was seen within which the process is believed",
        low=0,
        high=100,
        source="alpha, paper: 0 and 3",
    )
    recent: int = knob(5, "latest values of a parallelism that are averaged", low=1, high=100, source="K, README: 5")
    back_pressure: float = knob(
        0.1,
        "share of its time that an operator is stopped from which on it is back-pressured",
        low=0.0,
        high=1.0,
        source="backpressureThr, not given",
    )
    scale_out_above: float = knob(
        0.8,
        "use of the busiest instance above which a back-pressured job is too small",
        low=0.0,
        high=1.0,
        source="coreMaxThr, not given",
    )
    scale_in_below: float = knob(
        0.5,
        "mean use of the busiest operator below which the job is too large",
        low=0.0,
        high=1.0,
        source="coreMinThr, not given",
    )
    decision_threshold: float = knob(
        0.1,
        "least change of the number of all instances for less of them",
        low=0.0,
        high=10.0,
        source="decisionThr, not given",
    )
    warm_up_windows: int = knob(1, "windows ignored after a change", low=0, high=30)
    signal: str = signal_knob()

    def init(self, topology: Topology, seed: int = 0) -> ContTuneState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return ContTuneState(topology)

    def step(self, state: ContTuneState, snapshot: Snapshot) -> tuple[ContTuneState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, topology = snapshot.deployment, state.topology
        if state.last_deployment != now:
            resting = 0 if state.last_deployment is None else self.warm_up_windows
            most = max(state.most, *now.parallelism.values())
            state = state._replace(last_deployment=now, resting=resting, most=most)
        if state.resting or snapshot.downtime_s > 0:
            left = max(0, state.resting - 1)
            return state._replace(resting=left), Decision(now, {"warm up": state.resting})
        state = state._replace(history=self._learned(state, snapshot))
        offered = snapshot.source_rate
        same = state.offered is not None and abs(offered - state.offered) <= _LOAD * state.offered
        why: dict[str, Any] = {}
        if self._short(topology, snapshot):
            if same and not state.big:  # footnote 3: the rates are known
                target, ways = self._small(state, now, state.tuned_for)
                if target != now:
                    return state, Decision(target, {"rule": "tunes again: the rates are known", "by": ways})
            most = state.most
            if all(now.parallelism[n] == k for n, k in self._all(topology, most).items()):
                most = min(2 * most, max(o.max_parallelism for o in topology.operators))
            target = now.scaled(self._all(topology, most))
            why = {"rule": "under-provisioned: all operators get the most", "most": most}
            if target == now:
                why["rule"] = "under-provisioned, and at its limits"
            return state._replace(most=most, big=True, offered=None), Decision(target, why)
        use = max((u for m in snapshot.operators.values() if (u := mean_use(m, self.signal)) is not None), default=None)
        if use is None or not (state.big or use < self.scale_in_below):
            return state, Decision(now, {"rule": "runs as it should", "use of the busiest operator": use})
        rates = self._rates(topology, snapshot)
        target, ways = self._small(state, now, rates)
        state = state._replace(big=False, tuned_for=FrozenMap(rates), offered=offered)
        why = {"rule": "each operator gets what its rate needs", "rate": rates, "by": ways}
        before, after = now.instances, target.instances
        if max(before, after) < (1 + self.decision_threshold) * min(before, after) or before == after:
            return state, Decision(
                now, {**why, "rule": f"{after} instead of {before} instances are no reason to change"}
            )
        return state, Decision(target, why)

    def _all(self, topology: Topology, most: int) -> dict[str, int]:
        return topology.clip(dict.fromkeys(topology.order, most))

    def _learned(self, state: ContTuneState, snapshot: Snapshot) -> History:
        found = dict(state.history)
        for name, m in snapshot.operators.items():
            if m.true_rate:
                k = m.parallelism
                levels = dict(found.get(name, {}))
                levels[k] = (*levels.get(k, ()), m.true_rate * k)[-self.recent :]
                found[name] = FrozenMap(levels)
        return FrozenMap(found)

    def _short(self, topology: Topology, snapshot: Snapshot) -> bool:
        """Return whether an operator is full while another one is stopped, or the log of a full source grows."""
        full = {n for n, m in snapshot.operators.items() if (fullest(m, self.signal) or 0.0) > self.scale_out_above}
        stopped = any((m.blocked or 0.0) >= self.back_pressure for m in snapshot.operators.values())
        late = (
            n
            for n, offered in snapshot.source_rates.items()
            if (m := snapshot.operators.get(n)) and m.processing_rate < (1 - _LOAD) * offered
        )
        return bool(full) and (stopped or any(late))

    def _rates(self, topology: Topology, snapshot: Snapshot) -> dict[str, float]:
        """Return the rates that arrive, of the operators that were measured."""
        offered = {n: r for n, r in snapshot.source_rates.items() if n in snapshot.operators}
        return {n: m.input_rate for n, m in snapshot.operators.items()} | offered

    def _small(
        self, state: ContTuneState, now: Deployment, rates: Mapping[str, float]
    ) -> tuple[Deployment, dict[str, str]]:
        """Return one step of Algorithm 2, and how each number was found."""
        wanted, ways = {}, {}
        for name, rate in rates.items():
            levels = state.history.get(name)
            if not levels:
                continue
            seen = {k: math.fsum(v) / len(v) for k, v in levels.items()}
            most = max(state.most, *seen)
            wanted[name], ways[name] = chosen(seen, now.parallelism[name], rate, most, self.alpha)
        return now.scaled(state.topology.clip(wanted)), ways
