r"""AuTraScale: the throughput base by true rates, Bayesian optimisation above it, transfer from old rates [autrascale].

    | paper | here |
    |---|---|
    | $k'$, $P_{max}$ | `base` of the state; `most` |
    | $l_t$, $\alpha$, $w$, $\xi$ | `target_latency_s`, `alpha`, `over`, `xi` |
    | $s_l$ | stop threshold $\alpha+(1-\alpha)/(1+w)$ |
    | $M$ | `levels` of the bootstrap set |
    | Num | `num` |

Phases: *throughput* (Eq. 3 until the rate is met or the same is recommended twice; of what ran, the best), *bootstrap*
and *search* (Algorithm 1) or *transfer* (Algorithm 2, as repaired in `bo.transfer`), *trim* (ours: fewer slots, as far
as latency allows), *hold*. A rate that moves by more
than `rate_change` begins anew, and what was learned becomes a model of the library.

Readings not taken by default: Eq. 3 with rounded capacities (`mode`), ratios above 1 in the score, and the best
predicted score as the one to improve on (`incumbent`). Where Algorithm 1 has no end, it ends after `max_iterations` or
when nothing promises more than $10^{-6}$. Added: the run at the base counts as a sample; a throughput run that meets
the rate goes on if fewer slots are recommended; what is held and no longer meets the target is searched again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

from ..bo._given import whole
from ..bo.gp import FITS, NOISE
from ..bo.library import Library, Model
from ..bo.prior import KINDS
from ..bo.score import stop_threshold
from ..bo.search import Search
from ..bo.space import Config, Lattice
from ..bo.transfer import ALIGNS, INCUMBENTS, MODELS
from ..core import Decision, Snapshot, Topology
from ..errors import KnobError
from ..frozen import FrozenMap
from ..knobs import Knobs, knob
from ._phases import Why, begin, judge, throughput
from ._plan import State, named, vector, verdict
from ._throughput import MODES

LONGEST = 3  # running times that an unclear or unready run may take, or that a change may be kept back


@dataclass(frozen=True)
class AuTraScale(Knobs):
    r"""Finds the least parallelism that sustains the rate, then searches above it for latency with few slots.

    Each configuration runs for `running_s` and is scored by
    $F(k)=\alpha\min(1,l_t/l_r)+(1-\alpha)\frac1N\sum k'_i/k_i$. A
    Gaussian process of the scores says where an improvement is most to be expected.
    """

    name: ClassVar[str] = "autrascale"
    reference: ClassVar[str] = "autrascale"
    target_latency_s: float = knob(
        0.18, "l_t: latency to meet", low=0.001, high=60.0, unit="s", source="WordCount", line="latency"
    )
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0, source="Tables II and III")
    over: float = knob(1.0, "w: over-allocation accepted", low=0.0, high=10.0, source="s_l = 0.9")
    xi: float = knob(0.01, "improvement that does not count", low=0.0, high=0.5)
    most: int = knob(40, "P_max: most instances of an operator", low=1, high=4096, source="the largest of Table II")
    levels: int = knob(6, "M: levels of the bootstrap set", low=1, high=100, source="10 runs for WordCount")
    num: int = knob(0, "real samples before the old model is left; 0 is M + N", low=0, high=1000, source="its advice")
    max_iterations: int = knob(30, "runs of a search at most; the paper has no limit", low=1, high=1000)
    rounds: int = knob(10, "runs of the throughput phase at most", low=1, high=100)
    running_s: float = knob(
        60.0,
        "time a configuration runs before it is judged",
        low=1.0,
        high=3600.0,
        unit="s",
        source="paper: 5 to 10 min",
    )
    warm_up_s: float = knob(30.0, "of this time, what is not counted", low=0.0, high=3600.0, unit="s")
    rate_change: float = knob(0.1, "share by which the rate must change to plan anew", low=0.01, high=1.0)
    tolerance: float = knob(0.02, "throughput below the rate that still meets it", low=0.0, high=0.5)
    mode: str = knob("demand", "Eq. 3: what is handed down, demand or capacity", choices=MODES)
    transfer: str = knob("nearest", "old models used at a new rate", choices=(*MODELS, "off"))
    align: str = knob("absolute", "old models are asked about k, or k over its base", choices=ALIGNS)
    incumbent: str = knob("measured", "best score to improve on in a transfer", choices=INCUMBENTS)
    prior: str = knob("constant", "prior mean of scores; the paper's is constant", choices=KINDS)
    confidence: float = knob(
        0.0, "probability with which latency must be met; 0: one mean decides", low=0.0, high=0.999
    )
    bootstrap: str = knob("paper", "first runs: the paper's set, or the base alone", choices=("paper", "base"))
    eager: bool = knob(False, "stop at the first run that meets all, bootstrap included", choices=(False, True))
    trims: int = knob(0, "runs with fewer slots than the first that meets all; the paper's is 0", low=0, high=1000)
    noise: float = knob(NOISE, "variance of measured scores", low=0.0, high=1.0)
    fit: str = knob("grid", "who finds the kernel", choices=FITS)
    base: Mapping[str, int] = field(default_factory=FrozenMap)  # k' of the first rate, where it is known
    library: Library = field(default_factory=Library)  # models of earlier runs

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up_s >= self.running_s:
            came = f"warm_up_s={self.warm_up_s:g}, running_s={self.running_s:g}"
            raise KnobError(came, expected="warm_up_s < running_s", fix="lengthen the run")
        if not isinstance(self.library, Library) or not isinstance(self.base, Mapping):
            raise KnobError("base or library of another kind", expected="a mapping, a Library", fix="see bo.Library")
        object.__setattr__(self, "base", FrozenMap(self.base))

    @property
    def search(self) -> Search:
        return Search(self.target_latency_s, self.alpha, self.xi, self.noise, self.prior, self.fit)

    @property
    def threshold(self) -> float:
        return stop_threshold(self.alpha, self.over)

    def init(self, topology: Topology, seed: int = 0) -> State:
        if self.library.models and self.library.operators != topology.order:
            raise KnobError(
                f"a library of {self.library.operators}", expected=f"one of {topology.order}", fix="load the job's own"
            )
        if self.base and set(self.base) != set(topology.order):
            raise KnobError(
                f"base of {sorted(self.base)}", expected=f"one of {topology.order}", fix="name each operator"
            )
        for name, n in self.base.items():
            whole(n, f"base of {name}", low=1)
        return State(topology, Library(topology.order, self.library.models), seed)

    def step(self, state: State, snapshot: Snapshot) -> tuple[State, Decision]:
        topology, t, rate = state.topology, snapshot.t, snapshot.source_rate
        now = vector(topology, snapshot.deployment.parallelism)
        if state.rate is not None and abs(rate - state.rate) > self.rate_change * state.rate:
            state = State(topology, self.learned(state), state.seed)
        if state.rate is None:
            state = state._replace(rate=rate, first=now)
            if self.base and not state.library.models:
                state = self._known_base(state, t)
        run = state.run.watch(snapshot, self.warm_up_s, LONGEST * self.running_s)
        state, full = state._replace(run=run), self.running_s - self.warm_up_s
        wanted = now if state.asked is None else state.asked
        if wanted != now and t - state.asked_at < LONGEST * self.running_s:
            return state, self._decide(state, snapshot, {"rule": "waits for its configuration"})
        if run.seen is None or run.measured_s < full - 1e-6 or self._unclear(state, t - run.began, snapshot.window_s):
            return state, self._decide(state, snapshot, {"rule": f"measured {run.measured_s:g} of {full:g} s"})
        refused = (wanted,) if wanted != now else ()
        state = state._replace(
            queue=tuple(k for k in state.queue if k not in (now, *refused)), runs=state.runs + (state.phase != "hold")
        )
        state, why = throughput(self, state, now, t) if state.phase == "throughput" else judge(self, state, now)
        state = state._replace(run=state.run.again(t), asked_at=t)
        return state, self._decide(state, snapshot, why)

    def learned(self, state: State) -> Library:
        """The models of earlier rates, and of this one as far as it was searched; `save()` keeps them."""
        if not state.samples or not state.rate:
            return state.library
        model = Model(state.rate, self.box(state).base, self.box(state).most, state.samples)
        return state.library.add(model, within=self.rate_change / 2)

    def _unclear(self, state: State, elapsed_s: float, window_s: float) -> bool:
        """A run that says nothing yet: no latency, or one too noisy to tell whether it meets the target."""
        if elapsed_s >= LONGEST * self.running_s or not state.rate:
            return False
        late, run = state.run.latencies, state.run
        if not late or self.confidence <= 0.5 or state.phase == "throughput" or run.seen is None:
            return not late
        # looked at only once in each further running time: whoever looks at every window sees luck sooner or later
        over = run.measured_s % (self.running_s - self.warm_up_s)
        between = over >= window_s - 1e-6
        return between or verdict(late, self.target_latency_s, self.each_look) is None

    @property
    def each_look(self) -> float:
        """The confidence of one look, of the at most LONGEST at a run."""
        return 1 - (1 - self.confidence) / LONGEST if self.confidence > 0.5 else self.confidence

    def limits(self, topology: Topology) -> Config:
        return tuple(
            max(o.min_parallelism, min(self.most, o.max_parallelism)) for o in map(topology.__getitem__, topology.order)
        )

    def box(self, state: State) -> Lattice:
        most = self.limits(state.topology)
        base = state.base or state.first or most
        return Lattice([min(a, b) for a, b in zip(base, most, strict=True)], most)

    def _known_base(self, state: State, t: float) -> State:
        """Straight to the search, from a base that somebody knows."""
        base = vector(state.topology, state.topology.clip(self.base))
        return begin(self, state._replace(base=base), None, t)

    def _decide(self, state: State, snapshot: Snapshot, why: Why) -> Decision:
        now, k = snapshot.deployment, state.asked
        told: Why = {"phase": state.phase, **why, "rate": snapshot.source_rate}
        if state.base is not None:
            told["base"] = named(state.topology, state.base)
        told |= {"stop threshold": round(self.threshold, 6), "samples": len(state.samples), "runs": state.runs}
        if state.short:
            told["cluster too small"] = state.short
        return Decision(now if k is None else now.scaled(state.topology.clip(named(state.topology, k))), told)
