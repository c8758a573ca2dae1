r"""DRS: the job as an open network of M/M/k queues, with slots where they save most waiting [fu2015drs].

| paper | here |
|---|---|
| $\lambda_i$, $\mu_i$ | `arrivals`, records/s; `rates` of one instance |
| $\lambda_0$ | `outside`: records/s offered to all sources |
| $E[T_i](k_i)$, $E[T](k)$ | `operator_time`, `network_time`, s |
| $T_{max}$, $K_{max}$ | `target_latency_s`, `max_slots` |

$E[T]$ excludes network and framework, so that it is below the measured latency. In AuTraScale's comparison, DRS is run
again until the *measured* latency is met, with rates as observed ($R/T$) or true ($R/T_u$).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import ArgumentError, Decision, KnobError, PolicyKnobs, Snapshot, Topology, knob
from ..core.queueing import sojourn
from ._measurements import Attained, DeploymentRun, commits_knob
from .ds2 import demands, instant

RATES = ("true", "observed")


def operator_time(arrivals: float, rate: float, k: int) -> float:
    """Return $E[T_i](k_i)$ of M/M/k: mean wait and service time; infinite if k instances cannot keep up.

    >>> round(operator_time(3, 2, 2), 6)
    1.142857
    """
    if not arrivals >= 0 or not 0 < rate < math.inf or arrivals == math.inf or k < 1 or k != int(k):
        raise ArgumentError(
            f"{arrivals} records/s for {k} instances of {rate}",
            expected="arrivals >= 0, a rate > 0, k from 1 up",
            fix="leave out what was not measured",
        )
    if arrivals == 0:
        return 1 / rate
    return sojourn(int(k), arrivals, 1 / rate)[0] if arrivals < k * rate * (1 - 1e-12) else math.inf


def network_time(arrivals: Sequence[float], rates: Sequence[float], k: Sequence[int], outside: float) -> float:
    r"""Return $E[T](k)=\frac1{\lambda_0}\sum_i\lambda_iE[T_i](k_i)$: mean time of an external record in the job."""
    if not len(arrivals) == len(rates) == len(k) or not 0 <= outside < math.inf:
        raise ArgumentError(
            f"{len(arrivals)} arrivals, {len(rates)} rates, {len(k)} operators, {outside} records/s from outside",
            expected="equal numbers, and a rate >= 0",
            fix="pass one of each per operator",
        )
    each = (a * operator_time(a, mu, n) for a, mu, n in zip(arrivals, rates, k, strict=True) if a != 0)
    return sum(each) / outside if outside > 0 else 0.0


def allocate(
    arrivals: Sequence[float],
    rates: Sequence[float],
    outside: float,
    *,
    target_latency_s: float = 0.0,
    slots: int | None = None,
    max_parallelism: Sequence[int] | None = None,
) -> list[int]:
    """Return the fewest instances that keep up, plus one at a time where it saves most, until the target or the slots.

    The result is optimal, as each $\\lambda_i E[T_i]$ is convex in $k_i$. `max_parallelism` bounds single operators.

    >>> allocate((10, 10, 5), (4, 3, 12), 10, target_latency_s=0.75)
    [4, 6, 1]
    """
    if any(isinstance(x, str) for x in (arrivals, rates, max_parallelism, target_latency_s, slots, outside)):
        raise ArgumentError("text", expected="numbers", fix="convert them first")
    sizes = {len(arrivals), len(rates), len(rates if max_parallelism is None else max_parallelism)}
    usable = all(0 <= a < math.inf for a in (*arrivals, outside)) and all(0 < mu < math.inf for mu in rates)
    if sizes != {len(rates)} or not rates or not usable:
        raise ArgumentError(
            f"arrivals {arrivals}, rates {rates}, bounds {max_parallelism}",
            expected="one each, finite, >= 0 and > 0",
            fix="leave out idle operators",
        )
    if not 0 <= target_latency_s < math.inf:
        raise ArgumentError(f"target_latency_s={target_latency_s}", expected="a time >= 0", fix="0 for none")
    if not target_latency_s and slots is None:
        raise ArgumentError("neither a target nor slots", expected="one of them", fix="as in allocate(..., slots=11)")
    bounds = [10**6] * len(rates) if max_parallelism is None else list(max_parallelism)
    limit = sum(bounds) if slots is None else slots
    k = [min(math.floor(a / mu + 1e-9) + 1, b) for a, mu, b in zip(arrivals, rates, bounds, strict=True)]
    now = [a * operator_time(a, mu, n) if a else 0.0 for a, mu, n in zip(arrivals, rates, k, strict=True)]

    def saved(i: int) -> float:
        """Return the saving of one more instance; 0 at a bound, or if the operator remains overloaded."""
        if k[i] >= bounds[i] or math.isinf(now[i]) or not arrivals[i]:
            return 0.0
        return now[i] - arrivals[i] * operator_time(arrivals[i], rates[i], k[i] + 1)

    gains = [saved(i) for i in range(len(k))]
    while sum(k) < limit and max(gains) > 0 and sum(now) > target_latency_s * outside:
        i = gains.index(max(gains))
        now[i] -= gains[i]
        k[i] += 1
        gains[i] = saved(i)
    return k


class DRSState(NamedTuple):
    """The present run, and the rate of the last decision."""

    topology: Topology
    run: DeploymentRun = DeploymentRun()
    rate: float | None = None  # records/s
    attained: Attained = Attained()


@dataclass(frozen=True)
class DRS(PolicyKnobs):
    r"""Allocate the fewest slots whose mean time in a network of M/M/k queues meets the latency target.

    It decides once per rate, and again after each run whose measured latency misses the target, with newly measured
    rates. With `rates="observed"` ($R/T$, waiting included) an operator that keeps up seems to be fully busy, so that
    it gets one more instance each time.
    """

    name: ClassVar[str] = "drs"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    paper_run_s: ClassVar[float] = 1200.0
    reference: ClassVar[tuple[str, ...]] = ("fu2015drs", "autrascale")
    target_latency_s: float = knob(
        0.18, "mean latency to meet", low=0.001, high=60.0, unit="s", source="T_max, WordCount", line="latency"
    )
    rates: str = knob("true", "$\\mu$ from busy time, or from total time", choices=RATES)
    max_parallelism: int = knob(
        40, "most instances of an operator", low=1, high=4096, source="P_max, the largest of its Table II"
    )
    max_slots: int = knob(4096, "most instances together", low=1, high=1_000_000, source="K_max")
    running_s: float = knob(
        60.0, "time a deployment runs before it is judged", low=1.0, high=3600.0, unit="s", pace="duration"
    )
    warm_up_s: float = knob(
        30.0, "part of this time that is not counted", low=0.0, high=3600.0, unit="s", pace="duration"
    )
    rate_change: float = knob(0.1, "relative change of the rate that requires a new decision", low=0.01, high=1.0)
    commits: str = commits_knob()

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up_s >= self.running_s:
            got = f"warm_up_s={self.warm_up_s:g}, running_s={self.running_s:g}"
            raise KnobError(got, expected="warm_up_s < running_s", fix="lengthen the run")

    def init(self, topology: Topology, seed: int = 0) -> DRSState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return DRSState(topology)

    def step(self, state: DRSState, snapshot: Snapshot) -> tuple[DRSState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        now, t = snapshot.deployment, snapshot.t
        run = state.run.watch(snapshot, self.warm_up_s, 3 * self.running_s)
        state, whole = state._replace(run=run, attained=state.attained.after(snapshot)), self.running_s - self.warm_up_s
        if run.snapshot is None or run.measured_s < whole - 1e-6:
            return state, Decision(now, {"rule": f"measured {run.measured_s:g} of {whole:g} s"})
        seen, rate = run.snapshot, run.snapshot.source_rate
        late = None if seen.latency is None else seen.latency.mean
        state = state._replace(run=run.again(t))
        known = state.rate is not None and abs(rate - state.rate) <= self.rate_change * state.rate
        why: dict[str, Any] = {"rule": "decides", "rate": rate, "latency": late, "target": self.target_latency_s}
        if known and late is not None and late <= self.target_latency_s:
            return state, Decision(now, {**why, "rule": "latency is met"})
        share = state.attained.share if self.commits == "measured" and self.rates == "true" else 1.0
        demand, mu = demands(state.topology, seen), self._rates(seen, share)
        names = [n for n in state.topology.order if demand[n] is not None and (mu[n] or not demand[n])]
        silent = [n for n in state.topology.order if n not in names]
        arrivals = [demand[n] or 0.0 for n in names]
        most = [min(self.max_parallelism, state.topology[n].max_parallelism) for n in names]
        spare = max(1, self.max_slots - sum(now.parallelism[n] for n in silent))
        rates = [mu[n] or 1.0 for n in names]
        k = (
            allocate(arrivals, rates, rate, target_latency_s=self.target_latency_s, slots=spare, max_parallelism=most)
            if names
            else []
        )
        wanted = state.topology.clip(dict(zip(names, k, strict=True)))
        why |= {"arrivals": dict(zip(names, arrivals, strict=True)), f"{self.rates} rate": mu}
        why |= {"expected time": network_time(arrivals, rates, k, rate), "recommended": wanted}
        if share < 1:
            why["busy at most"] = round(share, 4)
        if silent:
            why["no data"] = silent
        if (total := sum(wanted.values())) > spare:
            why["too few slots"] = f"{total} just to keep up, of {spare}"
        return state._replace(rate=rate), Decision(now.scaled(wanted), why)

    def _rates(self, seen: Snapshot, share: float) -> dict[str, float | None]:
        """Return records/s of one instance; practically infinite if its busy time is below the clock's resolution."""
        found: dict[str, float | None] = dict.fromkeys(seen.deployment.parallelism)
        for n, m in seen.operators.items():
            found[n] = m.processing_rate / m.parallelism
            if self.rates == "true":
                found[n] = m.true_rate and m.true_rate * share
            if self.rates == "true" and instant(m):
                found[n] = 1e12
        return found
