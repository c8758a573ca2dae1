"""Standard policies for `compare`, by name, each made for the job, load and seed of its run.

Some need prior knowledge that an expert would provide: ELYSIUM a profile of the application, its proactive mode the
loads of earlier days, AuTraScale's transfer a library of models. They obtain it from warm-up runs of the same job: half
an hour under a load that sweeps all levels, other seeds of the same shape, runs at two constant rates. None of them
sees the run that is scored: a load that is the same with every seed has no earlier days, and the proactive mode then
begins without any. Only the static policies are yardsticks with hindsight, as they have the instances for a multiple of
the run's own peak.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from .. import policies as known
from ..apps import App
from ..core import Decision, Knobs, NotFoundError, Policy, Snapshot, Topology, control_loop, knob, run
from ..core.typing import Array
from ..policies.static import Static
from ..profiling import Profile, learn
from ..simulator.simulator import by_source, offered
from ..workload import Constant, Sine
from .cases import ROOM, Case, Made, seeded
from .oracle import fewest, required_rates
from .runs import Loads
from .standard_loads import EARLIER, peak_rate

MINUTE, REPLAYS = 60.0, 4
ALIKE = 0.02  # mean difference, as a share of the mean load, below which two loads count as the same


def standard_policies(only: Iterable[str] | None = None) -> dict[str, Callable[[Case], Made] | Policy]:
    """Return the standard policies by name, as functions of a `Case`.

    Parameters
    ----------
    only : iterable of str, optional
        Names of the policies, by default all.

    Examples
    --------
    >>> list(standard_policies(["ds2", "hpa"]))
    ['ds2', 'hpa']
    """
    makers: dict[str, Any] = {
        "static, under": lambda case: static(case, 0.5),
        "static, right": lambda case: static(case, 1.0),
        "static, over": lambda case: static(case, 2.0),
        "ds2": lambda case: known.get("ds2")(),
        "drs": lambda case: _made("drs", target_latency_s=_target(case), max_parallelism=_most(case)),
        "autrascale": lambda case: autrascale(case, transfer=False),
        "autrascale, transfer": lambda case: autrascale(case, transfer=True),
        "stela": stela,
        "fission": lambda case: _made("fission", max_parallelism=_most(case)),
        "elysium": lambda case: elysium(case, proactive=False),
        "elysium, proactive": lambda case: elysium(case, proactive=True),
        "joint": lambda case: _made("joint", nodes=len(case.app.plant.nodes)),
        "elastic_storm": lambda case: known.get("elastic_storm")(),
        "hierarchical": lambda case: _made(
            "hierarchical", target_latency_s=_target(case), slots_per_node=_slots(case.app)
        ),
        "dhalion": lambda case: known.get("dhalion")(),
        "hpa": lambda case: known.get("hpa")(),
        "flink_autoscaler": flink,
        "edrp": edrp,
    }
    if only is None:
        return makers
    names = [only] if isinstance(only, str) or not isinstance(only, Iterable) else list(only)
    if unknown := [n for n in names if not isinstance(n, str) or n not in makers]:
        raise NotFoundError(f"policy {unknown[0]!r}", expected=f"some of {', '.join(makers)}", fix="use these names")
    return {name: makers[name] for name in names}


def static(case: Case, times: float) -> Made:
    """Return a static policy with the instances for a multiple of the load's peak."""
    rates = _peak(case.app, case.workload, case.rules.duration_s) * times / ROOM
    asked = required_rates(case.app.topology, case.app.plant, rates)
    counts = {n: fewest(case.app.topology, case.app.plant, n, asked[n]) for n in case.app.topology.order}
    return Static(), case.app.deployment(counts)


def autrascale(case: Case, *, transfer: bool) -> Policy:
    """Return AuTraScale, with models of runs at a third and two thirds of the job's peak, or without models."""
    plain: Any = _made("autrascale", target_latency_s=_target(case), max_parallelism=_most(case))
    more = {"library": _library(_Held(case.app), plain)} if transfer else {"transfer": "off"}
    made: Policy = replace(plain, **more)
    return made


def stela(case: Case) -> Made:
    """Return Stela, triggered by the machines that DS2's parallelism needs; it starts with the fewest machines."""
    from .cases import started

    per_machine, nodes = _slots(case.app), len(case.app.plant.nodes)
    first = started(case.app, case.workload)
    trigger = Machines(known.get("ds2")(), per_machine, nodes)
    policy = _made("stela", trigger=trigger, machines=tuple(case.app.plant.nodes))
    return policy, replace(first, workers=min(nodes, max(1, math.ceil(first.instances / per_machine))))


def elysium(case: Case, *, proactive: bool) -> Policy:
    """Return ELYSIUM with the profile of a warm-up run; proactive with the minutes of earlier replays as history."""
    app, nodes = case.app, case.app.plant.nodes
    cores = next(iter(nodes.values())).cores
    policy: Any = _made("elysium", learned=profiled(app), nodes=len(nodes), cores=min(128, cores))
    made: Policy = policy
    if not proactive:
        return made
    from ..forecasting import AutoRegression

    past = earlier(case)
    minutes = max((len(rates) for rates in past.values()), default=0)
    proactively: Policy = replace(
        policy,
        mode="proactive",
        predictor=AutoRegression(),
        past=past,
        began_s=(MINUTE * minutes) % 604_800.0,
        relearn=1000,
    )
    return proactively


def flink(case: Case) -> Policy:
    """Return Flink's autoscaler with the plant's restart time, and windows of minutes: runs last an hour, not days."""
    pause_s = case.app.plant.pause_s
    return _made("flink_autoscaler", restart_s=pause_s, warm_up_s=60.0, metrics_window_s=120.0, scale_in_delay_s=300.0)


def edrp(case: Case) -> Policy:
    """Return EDRP on a network of the plant's size, with at most eight replicas per operator."""
    pause_s = max(1e-3, case.app.plant.pause_s)
    return _made(
        "edrp",
        target_latency_s=_target(case),
        max_parallelism=min(8, _most(case)),
        slots_per_node=_slots(case.app),
        sync_s=min(600.0, pause_s),
        max_downtime_s=2 * pause_s,
        max_cost=float(2 * sum(_at(case.app, peak_rate(case.app)).values())),
        branches=2000,
    )


def profiled(app: App) -> Profile:
    """Return a profile of the job, from half an hour under a load that sweeps all levels, at sufficient parallelism."""
    return _profile(_Held(app))


def earlier(case: Case) -> dict[str, tuple[float, ...]]:
    """Return the mean load per minute of each source, from earlier replays with other seeds.

    A replay that shows a source's load in the run, apart from its level, is left out: a recorded load passed as it is,
    a function that heeds no seed, a shape without chance. A source whose replays all do has no past.
    """
    minutes: dict[str, list[float]] = {s: [] for s in case.app.topology.sources}
    t = np.arange(0.0, max(MINUTE, case.rules.duration_s // MINUTE * MINUTE), 5.0) + 2.5
    scored = {s: load.rates(t) for s, load in by_source(case.app.topology, case.workload).items()}
    for replay in range(REPLAYS):
        load = case.workload if case.load is None else case.load
        other = seeded(load, case.app, EARLIER + REPLAYS * case.seed + replay)
        for source, load in by_source(case.app.topology, other).items():
            rates = load.rates(t)
            if not _shows(rates, scored[source]):
                minutes[source] += rates.reshape(-1, 12).mean(axis=1).tolist()
    return {s: tuple(rates) for s, rates in minutes.items() if rates}


def _shows(replay: Array, scored: Array) -> bool:
    """Return whether a replay shows when the scored load rises and falls: each is a multiple of the other, nearly."""
    if not replay.any() or not scored.any():
        return bool(replay.any() == scored.any())
    return bool(np.abs(replay / replay.mean() - scored / scored.mean()).mean() < ALIKE)


@dataclass(frozen=True)
class Machines(Knobs):
    """A policy that requests machines for another policy's instances, given the slots of a machine."""

    policy: Policy
    slots_per_node: int = knob(4, "slots per machine", low=1, high=100_000)
    machines: int = knob(4, "machines of the cluster", low=1, high=10_000)
    name = "machines"

    def init(self, topology: Topology, seed: int = 0) -> Any:
        return self.policy.init(topology, seed)

    def step(self, state: Any, snapshot: Snapshot) -> tuple[Any, Decision]:
        state, decision = self.policy.step(state, snapshot)
        wanted = min(self.machines, max(1, math.ceil(decision.deployment.instances / self.slots_per_node)))
        now = snapshot.deployment
        return state, Decision(replace(now, workers=wanted), {**decision.why, "machines": wanted})


class _Held:
    """An application as a key of a cache, by its hashable parts."""

    def __init__(self, app: App):
        self.app = app

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Held) and other._key == self._key

    def __hash__(self) -> int:
        return hash(self._key)

    @property
    def _key(self) -> Any:
        return self.app.topology, self.app.plant, peak_rate(self.app), self.app.workers


@lru_cache(maxsize=32)
def _profile(held: _Held) -> Profile:
    top = peak_rate(held.app)
    counts = _at(held.app, top)
    swept = Sine(0.55 * top, 0.44 * top, 1200.0)
    calm = replace(held.app, plant=replace(held.app.plant, faults=()))
    return learn(run(Static(), calm.simulator(swept, parallelism=counts, seed=99), steps=180))


@lru_cache(maxsize=32)
def _library(held: _Held, policy: Any) -> Any:
    """Return the models that AuTraScale learns in an hour at each of two rates."""
    app = replace(held.app, plant=replace(held.app.plant, faults=()))
    for part in (1 / 3, 2 / 3):
        load = Constant(part * peak_rate(app))
        *_, last = control_loop(policy, app.simulator(load, seed=99), steps=360)
        policy = replace(policy, library=policy.learned(last.state))
    return policy.library


def _at(app: App, rate: float) -> dict[str, int]:
    shares = np.array([1.0 if not app.topology.upstream(n) else 0.0 for n in app.topology.order])
    asked = required_rates(app.topology, app.plant, shares * rate / max(1.0, shares.sum()) / ROOM)
    return {n: fewest(app.topology, app.plant, n, asked[n]) for n in app.topology.order}


def _peak(app: App, workload: Loads, duration_s: float) -> Any:
    times = np.arange(2.5, max(5.0, duration_s), 5.0)
    return offered(by_source(app.topology, workload), app.topology, times).max(axis=0)


def _made(name: str, **knobs: Any) -> Policy:
    return known.get(name)(**knobs)


def _target(case: Case) -> float:
    return min(
        60.0,
        max(1e-3, case.app.target_latency_s if case.rules.target_latency_s is None else case.rules.target_latency_s),
    )


def _most(case: Case) -> int:
    return min(4096, max(o.max_parallelism for o in case.app.topology.operators))


def _slots(app: App) -> int:
    """Return the slots per node, so that all nodes together have twice the slots that the job's peak needs."""
    return max(1, math.ceil(2 * sum(_at(app, peak_rate(app)).values()) / len(app.plant.nodes)))
