r"""ELYSIUM: operators first, then nodes, each scaled by itself, to what a load is expected to cost [elysium].

    | paper | here |
    |---|---|
    | core_min_thr, core_max_thr, cpu_max_thr | `core_min`, `core_max`, `cpu_max` |
    | assessment period, metric window | `assess_s`, `mean_over_s` |
    | $h$, $n_{ILP}$ | `ahead`, and the predictor's own |
    | SP, OCUP, OP | `learned`: a profile; without one it learns as it goes |

Everything is worked out anew at each assessment, so any number of instances and nodes may change at once. Readings not
taken by default: p goes on from what runs (`from_current`), a guard in the second loop over p (`guard`), a number of
nodes for each application (`each_its_own`), arrivals as the load (`load="arrivals"`), 1.2 times the prediction
(`factor`). The load is what sources emit, as in the paper: it holds the records of the last restart too, and less than
arrives where queues hold the source back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple

from ..core import Decision, Deployment, Snapshot, Topology
from ..errors import KnobError
from ..etp import rebalance
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ..predict.base import Predictor
from ..predict.network import SeasonalNetwork
from ..predict.proactive import Outlook
from ..profile.config import Config, Scheduler, compute_config
from ..profile.estimator import Estimator
from ..profile.profile import Profile
from ..profile.running import Running
from ._minute import Minute

LONGEST = 2880  # loads kept to predict from: two days of minutes


class State(NamedTuple):
    topology: Topology
    minute: Minute = Minute()
    running: Running = Running()
    outlooks: Mapping[str, Outlook] = FrozenMap()


@dataclass(frozen=True)
class Elysium(Knobs):
    """Each operator gets the fewest instances that are not in stress, then the job the fewest nodes that are not.

    An instance is in stress above `core_max` of its core, a node above `cpu_max` of all of its cores; what a load will
    use is told by profiles. The load is that of the last minute, or the greatest of the next ones (`mode`).
    """

    name: ClassVar[str] = "elysium"
    reference: ClassVar[str] = "elysium"
    mode: str = knob("reactive", "the load: of the last minute, or predicted", choices=("reactive", "proactive"))
    scale: str = knob("both", "what it may change", choices=("both", "operators", "nodes"))
    core_min: float = knob(
        0.25, "core_min_thr: below it an instance idles", low=0.0, high=0.9, source="0.25", line="busy"
    )
    core_max: float = knob(
        0.65, "core_max_thr: above it an instance is in stress", low=0.1, high=1.0, source="0.65", line="busy"
    )
    cpu_max: float = knob(0.80, "cpu_max_thr: above it a node is in stress", low=0.1, high=1.0, source="0.80")
    assess_s: float = knob(60.0, "time between assessments", low=1.0, high=3600.0, unit="s", source="60 s")
    mean_over_s: float = knob(60.0, "what is measured is a mean over this", low=1.0, high=3600.0, unit="s", source="60")
    nodes: int = knob(4, "nodes there are, where the job tells a number of workers", low=1, high=500, source="4")
    cores: int = knob(4, "cores of a node, used where nodes are not metered", low=1, high=128, source="4")
    load: str = knob("emitted", "the load: what sources emit, or what arrives", choices=("emitted", "arrivals"))
    ahead: int = knob(5, "h: assessments to look ahead; the greatest load counts", low=1, high=120, source="5 outputs")
    factor: float = knob(1.0, "times the prediction; the authors' prototype takes 1.2", low=0.1, high=5.0)
    relearn: int = knob(10, "assessments from one learning of the predictor to the next", low=1, high=10_080)
    began_s: float = knob(
        0.0, "time of the week at t = 0, from Monday on, for predictors that know it", low=0.0, high=604_800.0, unit="s"
    )
    from_current: bool = knob(False, "p begins with what runs, as in the prototype", choices=(True, False))
    guard: bool = knob(False, "the second loop over p never steps into stress", choices=(True, False))
    each_its_own: bool = knob(False, "applications may differ in their number of nodes", choices=(True, False))
    learned: Profile | None = None  # from `profile.learn`; without one it learns as it goes
    predictor: Predictor | None = None  # of the proactive mode; ELYSIUM's own net if there is none
    past: Mapping[str, tuple[float, ...]] = field(default_factory=FrozenMap)  # of each source: loads before the run
    scheduler: Scheduler = rebalance  # who puts instances on nodes; another than Storm's has its places deployed

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.core_min >= self.core_max:
            raise KnobError(
                f"core_min={self.core_min}, core_max={self.core_max}", expected="core_min < core_max", fix="move them"
            )
        unmade = isinstance(self.predictor, type)
        if not isinstance(self.learned, Profile | None) or not isinstance(self.predictor, Predictor | None) or unmade:
            raise KnobError(
                f"learned={self.learned!r}, predictor={self.predictor!r}"[:120],
                expected="a Profile and a Predictor, or None",
                fix="as in Elysium(learned=profile.learn(history))",
            )
        try:
            past = {s: tuple(map(float, rates)) for s, rates in dict(self.past).items()}
        except (TypeError, ValueError) as error:
            raise KnobError(f"past: {error}", expected="{source: loads}", fix="as in {'source': (90, 120)}") from error
        if not all(0 <= rate < math.inf for rates in past.values() for rate in rates):
            raise KnobError("past with a load below 0 or no number", expected="records/s", fix="mend the series")
        object.__setattr__(self, "past", FrozenMap(past))

    def init(self, topology: Topology, seed: int = 0) -> State:
        if unknown := set(self.past) - set(topology.sources):
            raise KnobError(f"past of {sorted(unknown)}", expected=f"some of {topology.sources}", fix="name sources")
        if self.learned is not None:
            Estimator(topology, self.learned)  # refuses a profile of something else before anything runs
        known = {s: Outlook(rates, self.began_s, self.assess_s) for s, rates in self.past.items() if rates}
        return State(topology, outlooks=FrozenMap(dict.fromkeys(topology.sources, Outlook()) | known))

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        running = state.running if self.learned else state.running.see(state.topology, snapshot)
        state = state._replace(minute=state.minute.see(snapshot, self.mean_over_s), running=running)
        now = snapshot.deployment
        if (decided := state.minute.due(self.assess_s)) is None:
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

    def _load(self, minute: Minute, source: str) -> float | None:
        """The mean load of a source over the last minute."""
        if self.load == "arrivals":
            return minute.mean(lambda s: s.source_rates.get(source))
        return minute.mean(lambda s: s.operators[source].processing_rate if source in s.operators else None)

    def _predict(self, state: State, snapshot: Snapshot, loads: Mapping[str, float]) -> tuple[State, dict[str, float]]:
        """The greatest load expected of each source; its past is kept in assessments."""
        predictor = self.predictor or SeasonalNetwork()
        at = snapshot.t + self.began_s
        whole, outlooks, expected = replace(snapshot, t=at, window_s=self.assess_s, downtime_s=0.0), {}, {}
        for source, outlook in state.outlooks.items():
            outlook = outlook.see(loads.get(source), whole, LONGEST).learn(predictor, 2, self.relearn)
            if outlook.rates:
                expected[source] = self.factor * outlook.forecast(predictor, self.ahead).peak
            outlooks[source] = outlook
        return state._replace(outlooks=FrozenMap(outlooks)), expected

    def _decide(self, estimator: Estimator, minute: Minute, now: Deployment, loads: Mapping[str, float]) -> Decision:
        names = minute.available(self.nodes)
        steers = self.scale != "operators" and (now.workers is not None or len(names) > 1)
        config = compute_config(
            estimator,
            loads,
            nodes=names or self.nodes,
            core_min=self.core_min,
            core_max=self.core_max,
            cpu_max=self.cpu_max,
            scheduler=self.scheduler,
            start=now.parallelism if self.from_current else None,
            guard=self.guard,
            each_its_own=self.each_its_own,
            parallelism=now.parallelism if self.scale == "nodes" else None,
        )
        target = now if self.scale == "nodes" else now.scaled(config.parallelism)
        if steers:
            own = self.each_its_own and len(set(config.by_application.values())) > 1
            tell = own or self.scheduler is not rebalance
            target = replace(target, workers=config.workers, placement=config.places if tell else {})
        return Decision(target, _why(config, loads, steers))


def _why(config: Config, loads: Mapping[str, float], steers: bool) -> dict[str, Any]:
    why: dict[str, Any] = {
        "load": {s: round(x, 4) for s, x in loads.items()},
        "instance CPU": {o: round(u, 4) for o, u in config.cpu.items()},
    }
    if steers:
        why["node CPU"] = {n: round(u, 4) for n, u in config.nodes.items()}
        if len(config.by_application) > 1:
            why["nodes"] = dict(config.by_application)
    if config.operator_saturated:
        why["operators saturated"] = config.operator_saturated
    if steers and config.node_saturated:
        why["nodes saturated"] = True
    return why
