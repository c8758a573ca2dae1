r"""DRS: the job as an open network of M/M/k operators, and slots given where they save most waiting [fu2015drs].

    | paper | here |
    |---|---|
    | $\lambda_i$, $\mu_i$ | `arrivals`, records/s; `rates` of one instance |
    | $\lambda_0$ | `outside`: records/s offered to all sources |
    | $E[T_i](k_i)$, $E[T](k)$ | `operator_time`, `network_time`, s |
    | $T_{max}$, $K_{max}$ | `target_s`, `slots` |

$E[T]$ leaves out network and framework, so it is less than what is measured; the comparison that AuTraScale draws asks
DRS again until the *measured* latency is met, with rates as observed ($R/T$) or true ($R/T_u$).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Snapshot, Topology
from ..errors import KnobError
from ..knobs import Knobs, knob
from ..queueing import sojourn
from ._runs import Run
from .ds2 import demands, instant

RATES = ("true", "observed")


def operator_time(arrivals: float, rate: float, k: int) -> float:
    """$E[T_i](k_i)$ of M/M/k: mean time waiting and in service; infinite if k cannot keep up.

    >>> round(operator_time(3, 2, 2), 6)
    1.142857
    """
    if not arrivals >= 0 or not 0 < rate < math.inf or arrivals == math.inf or k < 1 or k != int(k):
        raise KnobError(
            f"{arrivals} records/s for {k} instances of {rate}", expected="arrivals >= 0, a rate > 0, k from 1 up",
            fix="leave out what was not measured",
        )  # fmt: skip
    if arrivals == 0:
        return 1 / rate
    return sojourn(int(k), arrivals, 1 / rate)[0] if arrivals < k * rate * (1 - 1e-12) else math.inf


def network_time(arrivals: Sequence[float], rates: Sequence[float], k: Sequence[int], outside: float) -> float:
    r"""$E[T](k)=\frac1{\lambda_0}\sum_i\lambda_iE[T_i](k_i)$: mean time of a record from outside in the whole job."""
    if not len(arrivals) == len(rates) == len(k) or not 0 <= outside < math.inf:
        raise KnobError(
            f"{len(arrivals)} arrivals, {len(rates)} rates, {len(k)} operators, {outside} records/s from outside",
            expected="as many, and a rate >= 0",
            fix="one of each for an operator",
        )
    each = (a * operator_time(a, mu, n) for a, mu, n in zip(arrivals, rates, k, strict=True) if a != 0)
    return sum(each) / outside if outside > 0 else 0.0


def allocate(
    arrivals: Sequence[float],
    rates: Sequence[float],
    outside: float,
    *,
    target_s: float = 0.0,
    slots: int | None = None,
    most: Sequence[int] | None = None,
) -> list[int]:
    """The fewest instances that keep up, then one at a time where it saves most, until the target or the slots.

    Optimal, as each $\\lambda_i E[T_i]$ is convex in $k_i$. `most` bounds single operators.

    >>> allocate((10, 10, 5), (4, 3, 12), 10, target_s=0.75)
    [4, 6, 1]
    """
    if any(isinstance(x, str) for x in (arrivals, rates, most, target_s, slots, outside)):
        raise KnobError("text", expected="numbers", fix="convert them first")
    sizes = {len(arrivals), len(rates), len(rates if most is None else most)}
    usable = all(0 <= a < math.inf for a in (*arrivals, outside)) and all(0 < mu < math.inf for mu in rates)
    if sizes != {len(rates)} or not rates or not usable:
        raise KnobError(
            f"arrivals {arrivals}, rates {rates}, bounds {most}",
            expected="one each, finite, >= 0 and > 0",
            fix="leave out the idle",
        )
    if not 0 <= target_s < math.inf:
        raise KnobError(f"target_s={target_s}", expected="a time >= 0", fix="0 for none")
    if not target_s and slots is None:
        raise KnobError("neither a target nor slots", expected="one of them", fix="as in allocate(..., slots=11)")
    bounds = [10**6] * len(rates) if most is None else list(most)
    limit = sum(bounds) if slots is None else slots
    k = [min(math.floor(a / mu + 1e-9) + 1, b) for a, mu, b in zip(arrivals, rates, bounds, strict=True)]
    now = [a * operator_time(a, mu, n) if a else 0.0 for a, mu, n in zip(arrivals, rates, k, strict=True)]

    def saved(i: int) -> float:
        """What one more instance would save; nothing where a bound is reached or the operator stays overloaded."""
        if k[i] >= bounds[i] or math.isinf(now[i]) or not arrivals[i]:
            return 0.0
        return now[i] - arrivals[i] * operator_time(arrivals[i], rates[i], k[i] + 1)

    gains = [saved(i) for i in range(len(k))]
    while sum(k) < limit and max(gains) > 0 and sum(now) > target_s * outside:
        i = gains.index(max(gains))
        now[i] -= gains[i]
        k[i] += 1
        gains[i] = saved(i)
    return k


class State(NamedTuple):
    topology: Topology
    run: Run = Run()
    rate: float | None = None  # records/s that it last decided for


@dataclass(frozen=True)
class DRS(Knobs):
    r"""The least slots whose mean time in a network of M/M/k queues meets the latency target.

    Decides once for each rate, and again after each run whose measured latency misses the target, from rates measured
    anew. With `rates="observed"` ($R/T$, waiting included) an operator that keeps up seems to be just busy, so it gets
    one instance more each time.
    """

    name: ClassVar[str] = "drs"
    reference: ClassVar[tuple[str, ...]] = ("fu2015drs", "autrascale")
    target_latency_s: float = knob(
        0.18, "mean latency to meet", low=0.001, high=60.0, unit="s", source="WordCount", line="latency"
    )
    rates: str = knob("true", "$\\mu$ from busy time, or from all time", choices=RATES)
    most: int = knob(40, "most instances of an operator", low=1, high=4096, source="the largest of its Table II")
    slots: int = knob(4096, "K_max: most instances together", low=1, high=1_000_000)
    running_s: float = knob(60.0, "time a deployment runs before it is judged", low=1.0, high=3600.0, unit="s")
    warm_up_s: float = knob(30.0, "of this time, what is not counted", low=0.0, high=3600.0, unit="s")
    rate_change: float = knob(0.1, "share by which the rate must change to decide anew", low=0.01, high=1.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up_s >= self.running_s:
            came = f"warm_up_s={self.warm_up_s:g}, running_s={self.running_s:g}"
            raise KnobError(came, expected="warm_up_s < running_s", fix="lengthen the run")

    def init(self, topology: Topology, seed: int = 0) -> State:
        return State(topology)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        now, t = snapshot.deployment, snapshot.t
        run = state.run.watch(snapshot, self.warm_up_s, 3 * self.running_s)
        state, whole = state._replace(run=run), self.running_s - self.warm_up_s
        if run.seen is None or run.measured_s < whole - 1e-6:
            return state, Decision(now, {"rule": f"measured {run.measured_s:g} of {whole:g} s"})
        seen, rate = run.seen, run.seen.source_rate
        late = None if seen.latency is None else seen.latency.mean
        state = state._replace(run=run.again(t))
        known = state.rate is not None and abs(rate - state.rate) <= self.rate_change * state.rate
        why: dict[str, Any] = {"rule": "decides", "rate": rate, "latency": late, "target": self.target_latency_s}
        if known and late is not None and late <= self.target_latency_s:
            return state, Decision(now, {**why, "rule": "latency is met"})
        demand, mu = demands(state.topology, seen), self._rates(seen)
        names = [n for n in state.topology.order if demand[n] is not None and (mu[n] or not demand[n])]
        silent = [n for n in state.topology.order if n not in names]
        arrivals = [demand[n] or 0.0 for n in names]
        most = [min(self.most, state.topology[n].max_parallelism) for n in names]
        spare = max(1, self.slots - sum(now.parallelism[n] for n in silent))
        rates = [mu[n] or 1.0 for n in names]
        k = allocate(arrivals, rates, rate, target_s=self.target_latency_s, slots=spare, most=most) if names else []
        wanted = state.topology.clip(dict(zip(names, k, strict=True)))
        why |= {"arrivals": dict(zip(names, arrivals, strict=True)), f"{self.rates} rate": mu}
        why |= {"expected time": network_time(arrivals, rates, k, rate), "recommended": wanted}
        if silent:
            why["no data"] = silent
        if (total := sum(wanted.values())) > spare:
            why["too few slots"] = f"{total} just to keep up, of {spare}"
        return state._replace(rate=rate), Decision(now.scaled(wanted), why)

    def _rates(self, seen: Snapshot) -> dict[str, float | None]:
        """Records/s of one instance; infinite, as far as numbers go, for one faster than its clock."""
        found: dict[str, float | None] = dict.fromkeys(seen.deployment.parallelism)
        for n, m in seen.operators.items():
            found[n] = m.true_rate if self.rates == "true" else m.processing_rate / m.parallelism
            if self.rates == "true" and instant(m):
                found[n] = 1e12
        return found
