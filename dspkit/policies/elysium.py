r"""ELYSIUM: operators first, then nodes, each scaled to the expected cost of a load; and its rival `Joint` [elysium].

| paper | here |
|---|---|
| core_min_thr, core_max_thr, cpu_max_thr | `scale_in_below`, `scale_out_above`, `node_scale_out_above` |
| assessment period, metric window | `decision_interval_s`, `metrics_window_s` |
| $h$, $n_{ILP}$ | `ahead`, and the predictor's own |
| SP, OCUP, OP | `learned`: a profile; by default it is learned during the run |

Both decide every minute from means over the last minute (`Minute`). ELYSIUM computes each deployment from scratch, so
that any number of instances and nodes may change at once. Readings not taken by default: p starts from the present
parallelism (`from_current`), a guard in the second loop over p (`guard`), a number of nodes per application
(`each_its_own`), arrivals as the load (`load="arrivals"`), 1.2 times the prediction (`factor`). The load is the output
of the sources, as in the paper (`load="emitted"`): it includes the records of the last restart. If back-pressure keeps
a source below its arrivals, these are the load by default. The paper profiles CPU (`signal="cpu"`); by default an
instance is in stress also if its time is used up by waiting, as for a server. If the snapshot has instances, the
fullest one of an operator decides, for both policies.

`Joint` adds a node with every scale-out of an operator. At each assessment, an operator whose instances use more than
`scale_out_above` of a core gets one more, one below `scale_in_below` loses one. If any grew, one node is added; only if
none changed are nodes scaled alone: one more if a node uses more than `node_scale_out_above`, one fewer if every node
uses less than `node_scale_in_below`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import floor
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..core import (
    ArgumentError,
    Decision,
    Deployment,
    FrozenMap,
    KnobError,
    OperatorMetrics,
    PolicyKnobs,
    Snapshot,
    Topology,
    knob,
)
from ..etp import held_back, rebalance
from ..forecasting import Predictor, SeasonalNetwork
from ..forecasting.proactive import SourceForecast
from ..profiling import Config, Estimator, Profile, compute_config
from ..profiling.configuration import Scheduler
from ..profiling.profiles import OnlineProfile
from ._measurements import fullest, signal_knob


class Minute(NamedTuple):
    """The last windows, the time of the last decision, and all nodes observed."""

    windows: tuple[Snapshot, ...] = ()
    tick: int = 0
    nodes: tuple[str, ...] = ()
    whole: bool = False  # the job has no number of workers, so that the observed nodes are all nodes

    def see(self, snapshot: Snapshot, metrics_window_s: float) -> Minute:
        """Return the minute with one more window, without the oldest ones."""
        since = snapshot.t - metrics_window_s + 1e-9
        kept = (*(s for s in self.windows if s.t - s.window_s >= since - snapshot.window_s / 2), snapshot)
        nodes = tuple(dict.fromkeys([*self.nodes, *snapshot.nodes]))
        return Minute(kept, self.tick, nodes, self.whole or snapshot.deployment.workers is None)

    def due(self, decision_interval_s: float) -> Minute | None:
        """Return the minute after a decision, if it is time for one; otherwise None."""
        tick = floor(self.windows[-1].t / decision_interval_s + 1e-9)
        return self._replace(tick=tick) if tick != self.tick else None

    def mean(self, value: Callable[[Snapshot], float | None]) -> float | None:
        """Return the mean of a quantity over the windows in which it was measured; None if there is none."""
        known = [v for s in self.windows if (v := value(s)) is not None]
        return fmean(known) if known else None

    def available(self, nodes: int) -> list[str]:
        """Return the names of the available nodes, used ones first; without a number of workers, the observed ones."""
        if self.whole:
            return list(self.nodes)
        names = list(self.nodes[:nodes])
        i = 0
        while len(names) < nodes:
            i += 1
            if f"node-{i}" not in names:
                names.append(f"node-{i}")
        return names


class JointState(NamedTuple):
    """The last minute."""

    topology: Topology
    minute: Minute = Minute()


@dataclass(frozen=True)
class Joint(PolicyKnobs):
    """Add or remove one instance by its use of a core; add a node with each growth, remove one when all nodes idle."""

    name: ClassVar[str] = "joint"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "elysium"
    paper_run_s: ClassVar[float] = 1200.0
    scale_in_below: float = knob(
        0.25, "use of a core below which an instance idles", low=0.0, high=0.9, source="ELYSIUM's", line="busy"
    )
    scale_out_above: float = knob(
        0.65, "use of a core above which an instance is in stress", low=0.1, high=1.0, source="ELYSIUM's", line="busy"
    )
    node_scale_in_below: float = knob(
        0.40, "use of a node below which it idles", low=0.0, high=0.9, source="the authors' prototype"
    )
    node_scale_out_above: float = knob(
        0.80, "use of a node above which it is in stress", low=0.1, high=1.0, source="ELYSIUM's"
    )
    decision_interval_s: float = knob(
        60.0, "time between assessments", low=1.0, high=3600.0, unit="s", pace="duration", source="ELYSIUM's"
    )
    metrics_window_s: float = knob(
        60.0, "window over which metrics are averaged", low=1.0, high=3600.0, unit="s", pace="duration"
    )
    nodes: int = knob(4, "available nodes, if the job has a number of workers", low=1, high=500, source="4")
    signal: str = signal_knob()

    def __post_init__(self) -> None:
        super().__post_init__()
        for low, high in (("scale_in_below", "scale_out_above"), ("node_scale_in_below", "node_scale_out_above")):
            a, b = getattr(self, low), getattr(self, high)
            if a >= b:
                raise KnobError(f"{low}={a}, {high}={b}", expected=f"{low} < {high}", fix="move them apart")

    def init(self, topology: Topology, seed: int = 0) -> JointState:
        """Return the initial state, as described in `dspkit.Policy`."""
        return JointState(topology)

    def step(self, state: JointState, snapshot: Snapshot) -> tuple[JointState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        state = state._replace(minute=state.minute.see(snapshot, self.metrics_window_s))
        now = snapshot.deployment
        if (decided := state.minute.due(self.decision_interval_s)) is None:
            return state, Decision(now, {"rule": "measures"})
        wanted, used, minute = dict(now.parallelism), dict[str, float](), decided
        for name in state.topology.order:
            u = minute.mean(partial(_use, name=name, signal=self.signal))
            if u is not None:
                used[name] = round(u, 4)
                wanted[name] += (u > self.scale_out_above) - (u < self.scale_in_below)
        wanted = state.topology.clip(wanted)
        grew = [n for n, k in wanted.items() if k > now.parallelism[n]]
        target, why = now.scaled(wanted), {"core use": used, "node use": {}}
        shares = {n: u for n in snapshot.nodes if (u := minute.mean(partial(_node_use, n))) is not None}
        count = now.workers if now.workers is not None else len(minute.nodes)
        if now.workers is not None or count > 1:
            most = max(count, len(minute.available(self.nodes)))
            why["node use"] = {n: round(u, 4) for n, u in shares.items()}
            if grew or (target == now and shares and max(shares.values()) > self.node_scale_out_above):
                target = replace(target, workers=min(most, count + 1))
            elif target == now and shares and max(shares.values()) < self.node_scale_in_below:
                target = replace(target, workers=max(1, count - 1))
        return state._replace(minute=minute), Decision(target, why)


def _node_use(node: str, s: Snapshot) -> float | None:
    return s.nodes.get(node)


LONGEST = 2880  # number of loads kept for predictions: two days of minutes


class ElysiumState(NamedTuple):
    """The last minute, the profile learned so far, and the past of each source."""

    topology: Topology
    minute: Minute = Minute()
    running: OnlineProfile = OnlineProfile()
    outlooks: Mapping[str, SourceForecast] = FrozenMap()


@dataclass(frozen=True)
class Elysium(PolicyKnobs):
    """Give each operator the fewest instances that are not in stress, then the job the fewest nodes that are not.

    An instance is in stress above `scale_out_above` of its core, a node above `node_scale_out_above` of all its cores;
    the use under a load is estimated from profiles. The load is that of the last minute, or the greatest predicted one
    (`mode`).

    Parameters
    ----------
    learned : Profile, optional
        A profile from `profiling.learn`; by default it is learned during the run.
    predictor : Predictor, optional
        Predictor of the proactive mode; by default ELYSIUM's own net.
    past : mapping
        Loads before the run, by source.
    scheduler : callable
        Assigns instances to nodes; with another than Storm's its placements are deployed, as they are if the running
        deployment names places: Spark, unlike Storm, does not deal instances to workers in turn.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(Elysium(), apps.rolling_top_words(), steps=1)[-1].decision.why["rule"]
    'measures'
    """

    name: ClassVar[str] = "elysium"
    main_knobs: ClassVar[tuple[str, ...]] = ("scale_out_above", "scale_in_below", "decision_interval_s")
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "elysium"
    paper_run_s: ClassVar[float] = 1200.0
    mode: str = knob("reactive", "load of the last minute, or predicted load", choices=("reactive", "proactive"))
    scale: str = knob("both", "whether operators, nodes or both are scaled", choices=("both", "operators", "nodes"))
    scale_in_below: float = knob(
        0.25,
        "below this share of a core an instance idles",
        low=0.0,
        high=0.9,
        source="core_min_thr, 0.25",
        line="busy",
    )
    scale_out_above: float = knob(
        0.65,
        "above this share of a core an instance is in stress",
        low=0.1,
        high=1.0,
        source="core_max_thr, 0.65",
        line="busy",
    )
    node_scale_out_above: float = knob(
        0.80, "above this share of its cores a node is in stress", low=0.1, high=1.0, source="cpu_max_thr, 0.80"
    )
    decision_interval_s: float = knob(
        60.0, "time between assessments", low=1.0, high=3600.0, unit="s", pace="duration", source="60 s"
    )
    metrics_window_s: float = knob(
        60.0, "window over which metrics are averaged", low=1.0, high=3600.0, unit="s", pace="duration", source="60"
    )
    nodes: int = knob(4, "available nodes, if the job has a number of workers", low=1, high=500, source="4")
    cores: int = knob(4, "cores of a node, used if nodes are not metered", low=1, high=128, source="4")
    load: str = knob(
        "demand",
        "load: output of the sources, or arrivals; demand: arrivals under back-pressure, otherwise the output",
        choices=("demand", "emitted", "arrivals"),
        source="emitted",
    )
    signal: str = signal_knob()
    ahead: int = knob(5, "h: assessments to look ahead; the greatest load counts", low=1, high=120, source="5 outputs")
    factor: float = knob(1.0, "factor of the prediction; 1.2 in the authors' prototype", low=0.1, high=5.0)
    relearn: int = knob(10, "assessments from one learning of the predictor to the next", low=1, high=10_080)
    began_s: float = knob(
        0.0, "time of the week at t = 0, from Monday on, for predictors that use it", low=0.0, high=604_800.0, unit="s"
    )
    from_current: bool = knob(
        False, "p starts from the present parallelism, as in the prototype", choices=(True, False)
    )
    guard: bool = knob(False, "the second loop over p never steps into stress", choices=(True, False))
    each_its_own: bool = knob(False, "applications may differ in their number of nodes", choices=(True, False))
    learned: Profile | None = None
    predictor: Predictor | None = None
    past: Mapping[str, tuple[float, ...]] = field(default_factory=FrozenMap)
    scheduler: Scheduler = rebalance

    def __post_init__(self) -> None:
        super().__post_init__()
        unmade = isinstance(self.predictor, type)
        if not isinstance(self.learned, Profile | None) or not isinstance(self.predictor, Predictor | None) or unmade:
            raise ArgumentError(
                f"learned={self.learned!r}, predictor={self.predictor!r}"[:120],
                expected="a Profile and a Predictor, or None",
                fix="as in Elysium(learned=profile.learn(history))",
            )
        try:
            past = {s: tuple(map(float, rates)) for s, rates in dict(self.past).items()}
        except (TypeError, ValueError) as error:
            raise ArgumentError(
                f"past: {error}", expected="{source: loads}", fix="as in {'source': (90, 120)}"
            ) from error
        if not all(0 <= rate < math.inf for rates in past.values() for rate in rates):
            raise ArgumentError("past with an invalid load", expected="records/s >= 0", fix="correct the series")
        object.__setattr__(self, "past", FrozenMap(past))
        if self.scale == "nodes":
            object.__setattr__(self, "needs", frozenset({"workers"}))

    def init(self, topology: Topology, seed: int = 0) -> ElysiumState:
        """Return the initial state, as described in `dspkit.Policy`."""
        if unknown := set(self.past) - set(topology.sources):
            raise ArgumentError(
                f"past of {sorted(unknown)}", expected=f"some of {topology.sources}", fix="name sources"
            )
        if self.learned is not None:
            Estimator(topology, self.learned)  # rejects the profile of another topology before the run
        known = {
            s: SourceForecast(rates, self.began_s, self.decision_interval_s) for s, rates in self.past.items() if rates
        }
        return ElysiumState(topology, outlooks=FrozenMap(dict.fromkeys(topology.sources, SourceForecast()) | known))

    def step(self, state: ElysiumState, snapshot: Snapshot) -> tuple[ElysiumState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        running = state.running if self.learned else state.running.see(state.topology, snapshot, self._use)
        state = state._replace(minute=state.minute.see(snapshot, self.metrics_window_s), running=running)
        now = snapshot.deployment
        if (decided := state.minute.due(self.decision_interval_s)) is None:
            return state, Decision(now, {"rule": "measures"})
        state = state._replace(minute=decided)
        loads = {s: load for s in state.topology.sources if (load := self._load(state.minute, s)) is not None}
        if self.mode == "proactive":
            state, loads = self._predict(state, snapshot, loads)
        if missing := [s for s in state.topology.sources if s not in loads]:
            return state, Decision(now, {"no load known of": missing})
        if self.learned is None and (missing := running.missing(state.topology)):
            return state, Decision(now, {"not profiled yet": missing})
        estimator = Estimator(state.topology, self.learned or running.profile(), self.cores)
        return state, self._decide(estimator, state.minute, now, loads)

    def _use(self, metrics: OperatorMetrics) -> float:
        """Return the cores that the instances would use if each were as full as the fullest."""
        share = fullest(metrics, self.signal)
        return (metrics.utilisation if share is None else share) * metrics.parallelism

    def _load(self, minute: Minute, source: str) -> float | None:
        """Return the mean load of a source over the last minute."""

        def one(s: Snapshot) -> float | None:
            if self.load == "arrivals" or (self.load == "demand" and held_back(s)):
                return s.source_rates.get(source)
            return s.operators[source].processing_rate if source in s.operators else None

        return minute.mean(one)

    def _predict(
        self, state: ElysiumState, snapshot: Snapshot, loads: Mapping[str, float]
    ) -> tuple[ElysiumState, dict[str, float]]:
        """Return the greatest predicted load of each source; the past has one value per assessment."""
        predictor = self.predictor or SeasonalNetwork()
        at = snapshot.t + self.began_s
        whole, outlooks, expected = replace(snapshot, t=at, window_s=self.decision_interval_s, downtime_s=0.0), {}, {}
        for source, outlook in state.outlooks.items():
            outlook = outlook.see(loads.get(source), whole, LONGEST).learn(predictor, 2, self.relearn)
            if outlook.rates:
                expected[source] = self.factor * outlook.forecast(predictor, self.ahead).peak
            outlooks[source] = outlook
        return state._replace(outlooks=FrozenMap(outlooks)), expected

    def _decide(self, estimator: Estimator, minute: Minute, now: Deployment, loads: Mapping[str, float]) -> Decision:
        names = minute.available(self.nodes)
        nodes_too = self.scale != "operators" and (now.workers is not None or len(names) > 1)
        config = compute_config(
            estimator,
            loads,
            nodes=names or self.nodes,
            scale_in_below=self.scale_in_below,
            scale_out_above=self.scale_out_above,
            node_scale_out_above=self.node_scale_out_above,
            scheduler=self.scheduler,
            start=now.parallelism if self.from_current else None,
            guard=self.guard,
            each_its_own=self.each_its_own,
            parallelism=now.parallelism if self.scale == "nodes" else None,
        )
        target = now if self.scale == "nodes" else now.scaled(config.parallelism)
        if nodes_too:
            own = self.each_its_own and len(set(config.by_application.values())) > 1
            tell = own or self.scheduler is not rebalance or bool(now.placement)
            target = replace(target, workers=config.workers, placement=config.places if tell else {})
        return Decision(target, _why(config, loads, nodes_too))


def _why(config: Config, loads: Mapping[str, float], nodes_too: bool) -> dict[str, Any]:
    why: dict[str, Any] = {
        "load": {s: round(x, 4) for s, x in loads.items()},
        "instance CPU": {o: round(u, 4) for o, u in config.cpu.items()},
    }
    if nodes_too:
        why["node CPU"] = {n: round(u, 4) for n, u in config.nodes.items()}
        if len(config.by_application) > 1:
            why["nodes"] = dict(config.by_application)
    if config.operator_saturated:
        why["operators saturated"] = config.operator_saturated
    if nodes_too and config.node_saturated:
        why["nodes saturated"] = True
    return why


def _use(snapshot: Snapshot, name: str, signal: str) -> float | None:
    """Return the use of the fullest instance of an operator."""
    return fullest(snapshot.operators.get(name), signal)
