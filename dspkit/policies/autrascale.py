r"""AuTraScale: a throughput base by true rates, Bayesian optimisation above it, transfer between rates [autrascale].

| paper | here |
|---|---|
| $k'$, $P_{max}$ | `base` of the state; `max_parallelism` |
| $l_t$, $\alpha$, $w$, $\xi$ | `target_latency_s`, `alpha`, `over`, `xi` |
| $s_l$ | stop threshold $\alpha+(1-\alpha)/(1+w)$ |
| $M$ | `levels` of the bootstrap set |
| Num | `num` |
| $v_e$ | offered rate of a source |
| $\bar v_i$ | `true_rate`: of one instance that never waits |
| $k_i$, $k'_i$ | parallelism now, and recommended |

Phases: *throughput* (Eq. 3 until the rate is met or a recommendation repeats; then the best measured one), *bootstrap*
and *search* (Algorithm 1) or *transfer* (Algorithm 2, as corrected in `bo.transfer`), *trim* (ours: fewer slots, as far
as latency allows), *hold*. A rate that changes by more than `rate_change` starts again, and the samples of the old rate
become a model of the library. Each phase is a function from the state after a finished run to the next state and the
reason; its argument `p` is the policy, whose knobs it reads.

The throughput base is the least parallelism whose true rates sustain the load. In Eq. 3,
$v^*_{i-1}k'_{i-1}/k_{i-1}=\bar v_{i-1}k'_{i-1}$ passes the rounded-up capacity of an operator down to the next
("literal", with selectivities; "printed" without them; for several parents their sum). "demand" passes the demand down
instead.

Readings not taken by default: Eq. 3 with rounded capacities (`mode`), ratios above 1 in the score, and the best
predicted score as the one to improve on (`incumbent`). Algorithm 1 does not always terminate; here it ends after
`max_iterations` or when no improvement above $10^{-6}$ is expected. Added: the run at the base counts as a sample; a
throughput run that meets the rate continues if fewer slots are recommended; a held configuration that no longer meets
the target is searched again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from math import ceil
from statistics import fmean
from typing import Any, ClassVar, NamedTuple

from ..bo import Lattice, Library, Model, Sample, Search, resource_score, score, stop_threshold
from ..bo.acquisition import LEAST
from ..bo.gp import FITTERS, NOISE
from ..bo.search import SCORE_PRIORS, trim
from ..bo.space import Config
from ..bo.transfer import ALIGNS, INCUMBENTS, MODELS, LatencyMixture, blend, first_run, guarded
from ..bo.transfer import recommend as transferred
from ..core import ArgumentError, Decision, FrozenMap, KnobError, OperatorMetrics, PolicyKnobs, Snapshot, Topology, knob
from ..core.lazy import load
from ..core.validation import whole
from ._measurements import DeploymentRun
from .ds2 import demands, instant

MODES = ("demand", "literal", "printed")


class ThroughputTrial(NamedTuple):
    """A configuration that the throughput phase ran, and its next recommendation."""

    k: tuple[int, ...]
    throughput: float
    offered: float
    recommended: tuple[int, ...]


def recommend_instances(
    topology: Topology, snapshot: Snapshot, mode: str = "demand"
) -> tuple[dict[str, float], list[str]]:
    """Return the instances that each operator needs, unrounded and unbounded, and the operators without data.

    Operators without data keep their instances. One whose busy time is below the resolution of its clock needs one.
    """
    now = snapshot.deployment.parallelism
    if mode == "demand":
        asked: Mapping[str, float | None] = demands(topology, snapshot)
        found = {n: _instances(asked[n], snapshot.operators.get(n)) for n in topology.order}
    else:
        found = {}
        for name in topology.order:
            arriving = _capacity(topology, snapshot, name, found, mode)
            found[name] = _instances(arriving, snapshot.operators.get(name))
    unknown = [n for n, k in found.items() if k is None]
    return {n: float(now[n]) if k is None else k for n, k in found.items()}, unknown


def _instances(rate: float | None, metrics: OperatorMetrics | None) -> float | None:
    if rate == 0:
        return 1.0
    if rate is None or metrics is None:
        return None
    if metrics.true_rate:
        return rate / metrics.true_rate
    return 1.0 if instant(metrics) else None


def _capacity(
    topology: Topology, seen: Snapshot, name: str, found: Mapping[str, float | None], mode: str
) -> float | None:
    """Return the arrivals at an operator if its parents work at full speed."""
    if not topology.upstream(name):
        return seen.source_rates.get(name)
    total = 0.0
    for parent in topology.upstream(name):
        metrics, k = seen.operators.get(parent), found[parent]
        share = 1.0 if mode == "printed" else seen.selectivity((parent, name))
        if metrics is None or k is None or share is None or not metrics.true_rate:
            return None
        total += share * metrics.true_rate * max(1, math.ceil(k - 1e-9))
    return total


def best(trials: Sequence[ThroughputTrial], near: float = 0.02) -> ThroughputTrial:
    """Return the trial of the greatest throughput; among those within `near` of it, the one with fewest slots.

    Throughput above the offered rate does not count, as it drains a queue.
    """
    reached = [min(t.throughput, t.offered) for t in trials]
    close = [t for t, x in zip(trials, reached, strict=True) if x >= (1 - near) * max(reached)]
    return min(close, key=lambda t: (sum(t.k), -t.throughput, t.k))


PHASES = ("throughput", "bootstrap", "search", "transfer", "trim", "hold")


class AuTraScaleState(NamedTuple):
    """The state; it contains samples rather than models, which are fitted again, so that it is small."""

    topology: Topology
    library: Library  # models of earlier rates
    seed: int = 0
    phase: str = PHASES[0]
    rate: float | None = None  # records/s of this plan
    run: DeploymentRun = DeploymentRun()
    target: Config | None = None  # the requested configuration; None for the present one
    target_at: float = 0.0
    first: Config | None = None  # the configuration when this rate began
    tried: tuple[ThroughputTrial, ...] = ()  # runs of the throughput phase
    base: Config | None = None  # k'
    short: Mapping[str, float] | None = None  # needs of operators that exceed their maximum
    samples: tuple[Sample, ...] = ()
    starved: frozenset[Config] = frozenset()  # samples with insufficient throughput
    queue: tuple[Config, ...] = ()  # remaining configurations of the bootstrap set
    iterations: int = 0
    added: int = 0  # measured samples since the transfer began
    runs: int = 0  # runs at this rate
    met: bool = False  # whether the held configuration met all goals
    accepted: Config | None = None  # the configuration that met all goals; after a trim, the cheapest one
    trims: int = 0  # runs with fewer slots than that


def vector(topology: Topology, parallelism: Mapping[str, int]) -> Config:
    """Return a parallelism as numbers in the topology's order."""
    return tuple(parallelism[n] for n in topology.order)


def named_parallelism(topology: Topology, k: Sequence[int] | None) -> dict[str, int]:
    """Return a configuration as a parallelism by operator."""
    return dict(zip(topology.order, k or (), strict=False))


def with_sample(samples: tuple[Sample, ...], new: Sample, held: bool) -> tuple[Sample, ...]:
    """Return the samples with one more, which replaces an earlier one of a held configuration."""
    kept = tuple(s for s in samples if not (held and s.k == new.k))
    return (*kept, new)


def fed(snapshot: Snapshot, tolerance: float) -> bool:
    """Return whether the throughput reaches the offered rate; above it, a queue drains."""
    return snapshot.throughput >= (1 - tolerance) * snapshot.source_rate


def verdict(latencies: Sequence[float], target_latency_s: float, confidence: float) -> bool | None:
    """Return whether the mean latency meets the target; None if that is not yet certain.

    Without a confidence the mean of the run decides, as in the paper. With one, a confidence interval of the mean must
    lie on one side of the target: Cox's for a lognormal mean, as latencies have long tails, with Student's quantile,
    and with the effective number of windows under their autocorrelation.

    >>> verdict([0.10, 0.20, 0.19], 0.18, 0.0), verdict([0.10, 0.20, 0.19], 0.18, 0.9)
    (True, None)
    """
    if not latencies:
        return False
    if confidence <= 0.5:
        return fmean(latencies) <= target_latency_s
    n = len(latencies)
    if n < 3:
        return None
    stdtrit = load("scipy.special", "standard").stdtrit
    logs = [math.log(max(x, 1e-9)) for x in latencies]
    mean = fmean(logs)
    apart = [x - mean for x in logs]
    total = max(sum(x * x for x in apart), 1e-12)
    seen = sum(x * y for x, y in pairwise(apart)) / total
    together = min(max(0.0, seen + (1 + 3 * seen) / n), 0.95)  # bias correction for few windows (Kendall)
    worth = max(2.0, n * (1 - together) / (1 + together))  # effective number of independent windows
    variance = total / (n - 1)
    error = math.sqrt(variance / worth + variance**2 / (2 * (worth - 1)))
    middle, margin = mean + variance / 2, float(stdtrit(worth - 1, confidence)) * error
    goal = math.log(target_latency_s)
    return True if middle + margin <= goal else False if middle - margin > goal else None


Why = dict[str, Any]


def throughput(p: AuTraScale, state: AuTraScaleState, current: Config, t: float) -> tuple[AuTraScaleState, Why]:
    """Perform one round of the throughput phase."""
    topology, seen = state.topology, state.run.snapshot
    assert seen is not None
    most = p.limits(topology)
    needs, unknown = recommend_instances(topology, seen, p.mode)
    clipped = vector(topology, topology.clip(needs))
    wanted = tuple(min(a, b) for a, b in zip(clipped, most, strict=True))
    short = {n: ceil(needs[n] - 1e-9) for n, b in zip(topology.order, most, strict=True) if needs[n] > b + 1e-9}
    trial = ThroughputTrial(current, seen.throughput, seen.source_rate, wanted)
    before = state.tried[-1].recommended if state.tried else None
    rate = state.rate if state.tried else seen.source_rate  # of a whole run, which varies less than that of a window
    state = state._replace(tried=(*state.tried, trial), short=short, rate=rate)
    why: Why = {"throughput": seen.throughput, "recommended": named_parallelism(topology, wanted)}
    if unknown:
        why["no data"] = unknown
    enough = fed(seen, p.tolerance) and sum(wanted) >= sum(current)
    rule = (
        "rate is met"
        if enough
        else "recommended twice"
        if wanted in (before, current)
        else "rounds are spent"
        if len(state.tried) >= p.rounds
        else ""
    )
    if not rule:
        return state._replace(target=wanted), {**why, "rule": "Eq. 3"}
    chosen = best(state.tried, p.tolerance)
    base = tuple(min(a, b) for a, b in zip(chosen.k, most, strict=True))
    state = state._replace(base=base)
    known = with_sample_of(p, state, current) if current == base else state
    return begin_search(p, known, state.run.snapshot, t), {**why, "rule": rule}


def begin_search(p: AuTraScale, state: AuTraScaleState, snapshot: Snapshot | None, t: float) -> AuTraScaleState:
    """Begin above the base: with a transfer if there are models, otherwise with the bootstrap set."""
    box = p.box(state)
    ran = {s.k for s in state.samples}
    if snapshot is not None and state.rate == 0:
        return state._replace(phase="hold", target=box.base, met=True)
    transfers = bool(state.library.models) and p.transfer != "off"
    if (p.eager or transfers) and not p.feasibility and state.samples and good(p, state, state.samples[-1]):
        return state._replace(phase="hold", target=box.base, met=True)
    if transfers:
        state = state._replace(phase="transfer")
        if ran:
            return next_by_improvement(p, state)[0]
        first = first_run(state.library, state.rate or 0.0, box, p.search) if p.transfer == "guarded" else box.base
        return state._replace(target=first, target_at=t)
    known_first = box.bootstrap(p.levels) if p.bootstrap == "paper" else (box.base,)
    queue = tuple(k for k in known_first if k not in ran)
    state = state._replace(phase="bootstrap", queue=queue)
    return state._replace(target=queue[0], target_at=t) if queue else after_bootstrap(p, state)[0]


def with_sample_of(p: AuTraScale, state: AuTraScaleState, k: Config) -> AuTraScaleState:
    """Return the state with the sample that this run measured at k."""
    seen, box = state.run.snapshot, p.box(state)
    assert seen is not None
    late = fmean(state.run.latencies) if state.run.latencies else None
    worst = float("inf") if late is None else late
    value = float(score(k, box.base, worst, p.target_latency_s, p.alpha))
    served = min(seen.throughput / seen.source_rate, 1.0) if seen.source_rate else None
    samples = with_sample(state.samples, Sample(k, value, late, served), state.phase == "hold")
    starved = state.starved - {k} if fed(seen, p.tolerance) else state.starved | {k}
    return state._replace(samples=samples, starved=starved)


def good(p: AuTraScale, state: AuTraScaleState, sample: Sample) -> bool:
    """Return whether a sample meets latency, throughput and score."""
    return met(p, state, sample) and sample.score >= p.threshold - 1e-12


def met(p: AuTraScale, state: AuTraScaleState, sample: Sample) -> bool:
    """Return whether a sample meets latency and throughput."""
    late = sample.latency_s
    return late is not None and late <= p.target_latency_s and sample.k not in state.starved


def judge(p: AuTraScale, state: AuTraScaleState, current: Config) -> tuple[AuTraScaleState, Why]:
    """Evaluate one run of the search, or of the held configuration."""
    if state.phase == "hold" and not state.rate:
        return state, {"rule": "no input"}
    sure = verdict(state.run.latencies, p.target_latency_s, p.each_look)
    state = with_sample_of(p, state, current)
    sample = state.samples[-1]
    # with a feasibility one run does not decide, but what is kept when no saving is expected
    fine = not p.feasibility and good(p, state, sample) and (sure is True or p.confidence <= 0.5)
    why: Why = {"score": sample.score, "latency": sample.latency_s}
    if state.phase == "hold":
        if met(p, state, sample) or not state.met or state.iterations >= p.max_iterations:
            return state, {**why, "rule": "holds"}
        state, more = next_by_improvement(p, state._replace(phase="search"))
        return state, {**why, **more, "rule": "no longer meets the target"}
    if state.phase == "bootstrap":
        if fine and p.eager:
            state, more = fewer(p, state._replace(accepted=current))
            return state, {**why, **more}
        if state.queue:
            return state._replace(target=state.queue[0]), {**why, "rule": "bootstrap"}
        state, more = after_bootstrap(p, state)
        return state, {**why, **more}
    if fine or state.phase == "trim":
        state = state._replace(iterations=state.iterations + (state.phase != "trim"))
        # a deployment changed from outside during a trim is accepted only if it saves slots as well
        saves = state.phase != "trim" or resource_score(current, p.box(state).base) > resource_score(
            state.accepted, p.box(state).base
        )
        state, more = fewer(p, state._replace(accepted=current) if fine and saves else state)
        return state, {**why, **more}
    state = state._replace(iterations=state.iterations + 1, added=state.added + (state.phase == "transfer"))
    if state.phase == "transfer" and p.transfer != "guarded" and state.added >= (p.num or p.levels + len(current)):
        state = state._replace(phase="search")
    state, more = next_by_improvement(p, state)
    return state, {**why, **more}


def after_bootstrap(p: AuTraScale, state: AuTraScaleState) -> tuple[AuTraScaleState, Why]:
    """Run the first configuration, within the box, as Algorithm 1 does; a known result is used at once."""
    state = state._replace(phase="search")
    start = p.box(state).clamp(state.first or ())
    known = [s for s in state.samples if s.k == start]
    if not known:
        return state._replace(target=start), {"rule": "first configuration"}
    if not p.feasibility and good(p, state, known[-1]):
        return fewer(p, state._replace(accepted=start))
    return next_by_improvement(p, state)


def fewer(p: AuTraScale, state: AuTraScaleState) -> tuple[AuTraScaleState, Why]:
    """Hold a configuration that met all goals, after `trims` runs with fewer slots.

    If a guard withheld a decision, the configuration may lie outside the box, and is held unchanged.
    """
    kept = state.accepted
    assert kept is not None
    if state.trims < p.trims and kept in p.box(state):
        seed = (state.seed, len(state.samples))
        found = trim(p.box(state), state.samples, kept, p.target_latency_s, seed=seed)
        if found is not None:
            more = {
                "kept": named_parallelism(state.topology, kept),
                "saving": found.saving,
                "probability": found.probability,
            }
            state = state._replace(phase="trim", target=found.k, trims=state.trims + 1)
            return state, {"rule": "fewer slots", **more}
    return state._replace(phase="hold", target=kept, met=True), {"rule": "meets all"}


def next_by_improvement(p: AuTraScale, state: AuTraScaleState) -> tuple[AuTraScaleState, Why]:
    """Propose the configuration of the greatest expected improvement; without any, hold the best sample."""
    box, seed = p.box(state), (state.seed, len(state.samples))
    if state.iterations >= p.max_iterations:
        return settle(p, state, "iterations are spent")
    more: Why = {}
    at = state.target if (p.rescale_s or p.move_s) and state.target in box else None
    guard = of_old_rates(p, state)
    if guard is not None:
        more["old rates"] = {"none" if r is None else f"{r:g}": round(w, 4) for w, r, _ in guard.parts}
    if state.phase == "transfer" and p.transfer != "guarded":
        old = blend(
            state.library,
            state.rate or 0.0,
            box,
            p.search,
            state.samples,
            models=p.transfer if p.transfer in MODELS else MODELS[0],
            align=p.align,
        )
        more["old rates"] = {f"{model.rate:g}": round(weight, 4) for weight, model, _ in old.parts}
        found = transferred(old, state.samples, p.search, p.levels, incumbent=p.incumbent, seed=seed, at=at)
    else:
        search = p.search
        if p.prior == "latency" and all(s.latency_s is None for s in state.samples):  # nothing to learn latencies from
            search = replace(search, prior="constant", feasibility=0.0)
        found = search.propose(box, state.samples, seed=seed, at=at, surrogate=guard)
    if found is None or found.improvement < (p.xi if p.feasibility else LEAST):
        if state.phase == "transfer" and p.transfer != "guarded":
            # the measured samples may expect an improvement that the old model does not
            return next_by_improvement(p, state._replace(phase="search"))
        return settle(p, state, "no improvement expected")
    more |= {"posterior mean": found.mean, "sigma": found.sigma, "expected improvement": found.improvement}
    return state._replace(target=found.k), {"rule": "expected improvement", **more}


def of_old_rates(p: AuTraScale, state: AuTraScaleState) -> LatencyMixture | None:
    """Return the posterior with the old rates by weight, in a guarded transfer."""
    if p.transfer != "guarded":
        return None
    return guarded(state.library, state.rate or 0.0, p.box(state), p.search, state.samples)


def settle(p: AuTraScale, state: AuTraScaleState, rule: str) -> tuple[AuTraScaleState, Why]:
    """Hold the best sample, or with a feasibility the cheapest that meets latency and rate with that probability."""
    if p.feasibility:
        guard = of_old_rates(p, state)
        kept = p.search.kept(p.box(state), state.samples, guard)
        if kept is not None:
            likely = float(p.search.feasible(p.box(state), state.samples, [kept], guard)[0])
            state = state._replace(phase="hold", target=kept, met=True)
            return state, {"rule": "meets latency and rate", "probability": likely}
    in_time = [s for s in state.samples if met(p, state, s)]
    chosen = max(in_time or state.samples, key=lambda s: s.score)
    return state._replace(phase="hold", target=chosen.k, met=False), {"rule": f"{rule}: best that ran"}


LONGEST = 3  # running times that an inconclusive run may take, or that the loop waits for a withheld change


@dataclass(frozen=True)
class AuTraScale(PolicyKnobs):
    r"""Find the least parallelism that sustains the rate, then search above it for low latency with few slots.

    Each configuration runs for `running_s` and is scored by $F(k)=\alpha\min(1,l_t/l_r)+(1-\alpha)\frac1N\sum
    k'_i/k_i$. A Gaussian process of the scores gives the configuration of the greatest expected improvement.

    Parameters
    ----------
    base : mapping
        The base k' of the first rate, if it is known.
    library : Library
        Models of earlier runs.

    Examples
    --------
    >>> from dspkit import apps, run
    >>> run(AuTraScale(), apps.word_count(), steps=1)[-1].decision.why["phase"]
    'throughput'
    """

    name: ClassVar[str] = "autrascale"
    needs: ClassVar[frozenset[str]] = frozenset({"parallelism"})
    reference: ClassVar[str] = "autrascale"
    paper_run_s: ClassVar[float] = 1200.0
    target_latency_s: float = knob(
        0.18, "latency to meet", low=0.001, high=60.0, unit="s", source="l_t, WordCount", line="latency"
    )
    alpha: float = knob(0.8, "weight of latency against slots", low=0.0, high=1.0, source="Tables II and III")
    over: float = knob(1.0, "w: over-allocation accepted", low=0.0, high=10.0, source="s_l = 0.9")
    xi: float = knob(0.01, "improvement that does not count", low=0.0, high=0.5)
    max_parallelism: int = knob(
        40, "most instances of an operator", low=1, high=4096, source="P_max, the largest of Table II"
    )
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
        pace="duration",
        source="paper: 5 to 10 min",
    )
    warm_up_s: float = knob(
        30.0, "part of this time that is not counted", low=0.0, high=3600.0, unit="s", pace="duration"
    )
    rate_change: float = knob(0.1, "relative change of the rate that starts a new plan", low=0.01, high=1.0)
    tolerance: float = knob(0.02, "throughput below the rate that still meets it", low=0.0, high=0.5)
    mode: str = knob("demand", "Eq. 3: whether demand or capacity is passed down", choices=MODES)
    transfer: str = knob(
        "nearest", "old models used at a new rate; 'guarded' needs prior='latency'", choices=(*MODELS, "guarded", "off")
    )
    align: str = knob("absolute", "old models are evaluated at k, or at k relative to the base", choices=ALIGNS)
    incumbent: str = knob("measured", "best score to improve on in a transfer", choices=INCUMBENTS)
    prior: str = knob(
        "constant", "what is known of scores or latency; the paper's is constant", choices=(*SCORE_PRIORS, "latency")
    )
    feasibility: float = knob(
        0.0, "probability of latency and rate; 0: the score decides; needs prior='latency'", low=0.0, high=0.9999
    )
    rescale_s: float = knob(
        0.0,
        "downtime of a change, weighed in proposals; the paper's is 0",
        low=0.0,
        high=3600.0,
        unit="s",
    )
    move_s: float = knob(0.0, "downtime per instance that starts or stops, as well", low=0.0, high=3600.0, unit="s")
    confidence: float = knob(0.0, "confidence that the latency is met; 0: the mean decides", low=0.0, high=0.999)
    bootstrap: str = knob("paper", "first runs: the paper's set, or the base alone", choices=("paper", "base"))
    eager: bool = knob(False, "stop at the first run that meets all goals, bootstrap included", choices=(False, True))
    trims: int = knob(0, "runs with fewer slots after one that meets all goals; the paper's is 0", low=0, high=1000)
    noise: float = knob(NOISE, "variance of measured scores", low=0.0, high=1.0)
    engine: str = knob("ours", "library of the Gaussian process", choices=FITTERS)
    base: Mapping[str, int] = field(default_factory=FrozenMap)
    library: Library = field(default_factory=Library)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.warm_up_s >= self.running_s:
            got = f"warm_up_s={self.warm_up_s:g}, running_s={self.running_s:g}"
            raise KnobError(got, expected="warm_up_s < running_s", fix="lengthen the run")
        if self.prior != "latency" and (self.feasibility or self.transfer == "guarded"):
            raise KnobError(
                f"feasibility={self.feasibility:g}, transfer={self.transfer!r} with prior={self.prior!r}",
                expected="a process of the latency",
                fix="use prior='latency'",
            )
        if not isinstance(self.library, Library) or not isinstance(self.base, Mapping):
            raise ArgumentError(
                "base or library of the wrong type", expected="a mapping, a Library", fix="see bo.Library"
            )
        object.__setattr__(self, "base", FrozenMap(self.base))

    @property
    def search(self) -> Search:
        """The settings of the search."""
        return Search(
            self.target_latency_s,
            self.alpha,
            self.xi,
            self.noise,
            self.prior,
            self.engine,
            feasibility=self.feasibility,
            tolerance=self.tolerance,
            running_s=self.running_s,
            rescale_s=self.rescale_s,
            move_s=self.move_s,
        )

    @property
    def threshold(self) -> float:
        """The score at which the search stops."""
        return stop_threshold(self.alpha, self.over)

    def init(self, topology: Topology, seed: int = 0) -> AuTraScaleState:
        """Return the initial state, as described in `dspkit.Policy`."""
        if self.library.models and self.library.operators != topology.order:
            raise ArgumentError(
                f"a library of {self.library.operators}",
                expected=f"one of {topology.order}",
                fix="load the library of this job",
            )
        if self.base and set(self.base) != set(topology.order):
            raise ArgumentError(
                f"base of {sorted(self.base)}", expected=f"one of {topology.order}", fix="name each operator"
            )
        for name, n in self.base.items():
            whole(n, f"base of {name}", low=1)
        return AuTraScaleState(topology, Library(topology.order, self.library.models), seed)

    def step(self, state: AuTraScaleState, snapshot: Snapshot) -> tuple[AuTraScaleState, Decision]:
        """Return the next state and the decision for one window, as described in `dspkit.Policy`."""
        topology, t, rate = state.topology, snapshot.t, snapshot.source_rate
        now = vector(topology, snapshot.deployment.parallelism)
        if state.rate is not None and abs(rate - state.rate) > self.rate_change * state.rate:
            state = AuTraScaleState(topology, self.learned(state), state.seed)
        if state.rate is None:
            state = state._replace(rate=rate, first=now)
            if self.base and not state.library.models:
                state = self._known_base(state, t)
        run = state.run.watch(snapshot, self.warm_up_s, LONGEST * self.running_s)
        state, full = state._replace(run=run), self.running_s - self.warm_up_s
        wanted = now if state.target is None else state.target
        if wanted != now and t - state.target_at < LONGEST * self.running_s:
            return state, self._decide(state, snapshot, {"rule": "waits for its configuration"})
        if (
            run.snapshot is None
            or run.measured_s < full - 1e-6
            or self._unclear(state, t - run.began, snapshot.window_s)
        ):
            return state, self._decide(state, snapshot, {"rule": f"measured {run.measured_s:g} of {full:g} s"})
        refused = (wanted,) if wanted != now else ()
        state = state._replace(
            queue=tuple(k for k in state.queue if k not in (now, *refused)), runs=state.runs + (state.phase != "hold")
        )
        state, why = throughput(self, state, now, t) if state.phase == "throughput" else judge(self, state, now)
        state = state._replace(run=state.run.again(t), target_at=t)
        return state, self._decide(state, snapshot, why)

    def learned(self, state: AuTraScaleState) -> Library:
        """Return the models of earlier rates and of the present one; `save()` keeps them.

        Parameters
        ----------
        state : AuTraScaleState
            The last state of a run.

        Examples
        --------
        >>> from dspkit import apps, run
        >>> policy = AuTraScale()
        >>> policy.learned(run(policy, apps.word_count(), steps=1)[-1].state).models
        ()
        """
        if not state.samples or not state.rate:
            return state.library
        model = Model(state.rate, self.box(state).base, self.box(state).max_parallelism, state.samples)
        return state.library.add(model, within=self.rate_change / 2)

    def _unclear(self, state: AuTraScaleState, elapsed_s: float, window_s: float) -> bool:
        """Return whether a run is inconclusive: without latency, or with one too noisy to compare with the target."""
        if elapsed_s >= LONGEST * self.running_s or not state.rate:
            return False
        late, run = state.run.latencies, state.run
        if not late or self.confidence <= 0.5 or state.phase == "throughput" or run.snapshot is None:
            return not late
        # one test per further running time: repeated tests at every window would succeed by chance sooner or later
        over = run.measured_s % (self.running_s - self.warm_up_s)
        between = over >= window_s - 1e-6
        return between or verdict(late, self.target_latency_s, self.each_look) is None

    @property
    def each_look(self) -> float:
        """The confidence of one test, of at most LONGEST tests of a run."""
        return 1 - (1 - self.confidence) / LONGEST if self.confidence > 0.5 else self.confidence

    def limits(self, topology: Topology) -> Config:
        """Return the maximum of each operator, from the knob and the topology.

        Parameters
        ----------
        topology : Topology
            The operators.

        Examples
        --------
        >>> AuTraScale(max_parallelism=8).limits(Topology.chain("a", "b"))
        (8, 8)
        """
        return tuple(
            max(o.min_parallelism, min(self.max_parallelism, o.max_parallelism))
            for o in map(topology.__getitem__, topology.order)
        )

    def box(self, state: AuTraScaleState) -> Lattice:
        """Return the configurations between base and maximum.

        Parameters
        ----------
        state : AuTraScaleState
            A state.

        Examples
        --------
        >>> policy = AuTraScale(max_parallelism=8)
        >>> state = policy.init(Topology.chain("a", "b"))._replace(base=(1, 2))
        >>> policy.box(state).size
        56
        """
        most = self.limits(state.topology)
        base = state.base or state.first or most
        return Lattice([min(a, b) for a, b in zip(base, most, strict=True)], most)

    def _known_base(self, state: AuTraScaleState, t: float) -> AuTraScaleState:
        """Begin the search at once, from a given base."""
        base = vector(state.topology, state.topology.clip(self.base))
        return begin_search(self, state._replace(base=base), None, t)

    def _decide(self, state: AuTraScaleState, snapshot: Snapshot, why: Why) -> Decision:
        now, k = snapshot.deployment, state.target
        why = {"phase": state.phase, **why, "rate": snapshot.source_rate}
        if state.base is not None:
            why["base"] = named_parallelism(state.topology, state.base)
        why |= {"stop threshold": round(self.threshold, 6), "samples": len(state.samples), "runs": state.runs}
        if state.short:
            why["cluster too small"] = state.short
        return Decision(
            now if k is None else now.scaled(state.topology.clip(named_parallelism(state.topology, k))), why
        )
