"""AuTraScale's phases: each takes the state after a finished run and gives the next, with the reason.

`p` is the policy, whose knobs they read.
"""

from __future__ import annotations

from math import ceil
from statistics import fmean
from typing import TYPE_CHECKING, Any

from ..bo.acquisition import LEAST
from ..bo.score import Sample, score, thrift
from ..bo.space import Config
from ..bo.transfer import MODELS, blend
from ..bo.transfer import recommend as transferred
from ..bo.trim import trim
from ..core import Snapshot
from ._plan import State, fed, named, vector, verdict, with_sample
from ._throughput import Trial, best, recommend

if TYPE_CHECKING:
    from .autrascale import AuTraScale

Why = dict[str, Any]


def throughput(p: AuTraScale, state: State, now: Config, t: float) -> tuple[State, Why]:
    """One round of the throughput phase."""
    topology, seen = state.topology, state.run.seen
    assert seen is not None
    most = p.limits(topology)
    needs, unknown = recommend(topology, seen, p.mode)
    clipped = vector(topology, topology.clip(needs))
    wanted = tuple(min(a, b) for a, b in zip(clipped, most, strict=True))
    short = {n: ceil(needs[n] - 1e-9) for n, b in zip(topology.order, most, strict=True) if needs[n] > b + 1e-9}
    trial = Trial(now, seen.throughput, seen.source_rate, wanted)
    before = state.tried[-1].wanted if state.tried else None
    rate = state.rate if state.tried else seen.source_rate  # of a whole run, which swings less than a window's
    state = state._replace(tried=(*state.tried, trial), short=short, rate=rate)
    why: Why = {"throughput": seen.throughput, "recommended": named(topology, wanted)}
    if unknown:
        why["no data"] = unknown
    enough = fed(seen, p.tolerance) and sum(wanted) >= sum(now)
    rule = (
        "rate is met" if enough
        else "recommended twice" if wanted in (before, now)
        else "rounds are spent" if len(state.tried) >= p.rounds
        else ""
    )  # fmt: skip
    if not rule:
        return state._replace(asked=wanted), {**why, "rule": "Eq. 3"}
    chosen = best(state.tried, p.tolerance)
    base = tuple(min(a, b) for a, b in zip(chosen.k, most, strict=True))
    state = state._replace(base=base)
    known = sampled(p, state, now) if now == base else state
    return begin(p, known, state.run.seen, t), {**why, "rule": rule}


def begin(p: AuTraScale, state: State, seen: Snapshot | None, t: float) -> State:
    """From the base on: transfer where there are models, else the bootstrap set."""
    box = p.box(state)
    ran = {s.k for s in state.samples}
    if seen is not None and state.rate == 0:
        return state._replace(phase="hold", asked=box.base, met=True)
    transfers = bool(state.library.models) and p.transfer != "off"
    if (p.eager or transfers) and state.samples and good(p, state, state.samples[-1]):
        return state._replace(phase="hold", asked=box.base, met=True)
    if transfers:
        state = state._replace(phase="transfer")
        return proceed(p, state)[0] if ran else state._replace(asked=box.base, asked_at=t)
    first = box.bootstrap(p.levels) if p.bootstrap == "paper" else (box.base,)
    queue = tuple(k for k in first if k not in ran)
    state = state._replace(phase="bootstrap", queue=queue)
    return state._replace(asked=queue[0], asked_at=t) if queue else after_bootstrap(p, state)[0]


def sampled(p: AuTraScale, state: State, k: Config) -> State:
    """With what this run showed of k."""
    seen, box = state.run.seen, p.box(state)
    assert seen is not None
    late = fmean(state.run.latencies) if state.run.latencies else None
    worst = float("inf") if late is None else late
    value = float(score(k, box.base, worst, p.target_latency_s, p.alpha))
    samples = with_sample(state.samples, Sample(k, value, late), state.phase == "hold")
    starved = state.starved - {k} if fed(seen, p.tolerance) else state.starved | {k}
    return state._replace(samples=samples, starved=starved)


def good(p: AuTraScale, state: State, sample: Sample) -> bool:
    """Latency, throughput and slots as asked."""
    return met(p, state, sample) and sample.score >= p.threshold - 1e-12


def met(p: AuTraScale, state: State, sample: Sample) -> bool:
    late = sample.latency_s
    return late is not None and late <= p.target_latency_s and sample.k not in state.starved


def judge(p: AuTraScale, state: State, now: Config) -> tuple[State, Why]:
    """One run of the search, or of what is held."""
    if state.phase == "hold" and not state.rate:
        return state, {"rule": "nothing comes in"}
    sure = verdict(state.run.latencies, p.target_latency_s, p.each_look)
    state = sampled(p, state, now)
    sample = state.samples[-1]
    fine = good(p, state, sample) and (sure is True or p.confidence <= 0.5)
    why: Why = {"score": sample.score, "latency": sample.latency_s}
    if state.phase == "hold":
        if met(p, state, sample) or not state.met or state.iterations >= p.max_iterations:
            return state, {**why, "rule": "holds"}
        state, more = proceed(p, state._replace(phase="search"))
        return state, {**why, **more, "rule": "no longer meets the target"}
    if state.phase == "bootstrap":
        if fine and p.eager:
            state, more = fewer(p, state._replace(kept=now))
            return state, {**why, **more}
        if state.queue:
            return state._replace(asked=state.queue[0]), {**why, "rule": "bootstrap"}
        state, more = after_bootstrap(p, state)
        return state, {**why, **more}
    if fine or state.phase == "trim":
        state = state._replace(iterations=state.iterations + (state.phase != "trim"))
        # somebody else may run something during a trim: that is kept only if it saves slots as well
        saves = state.phase != "trim" or thrift(now, p.box(state).base) > thrift(state.kept, p.box(state).base)
        state, more = fewer(p, state._replace(kept=now) if fine and saves else state)
        return state, {**why, **more}
    state = state._replace(iterations=state.iterations + 1, added=state.added + (state.phase == "transfer"))
    if state.phase == "transfer" and state.added >= (p.num or p.levels + len(now)):
        state = state._replace(phase="search")
    state, more = proceed(p, state)
    return state, {**why, **more}


def after_bootstrap(p: AuTraScale, state: State) -> tuple[State, Why]:
    """Algorithm 1 runs what ran at first, within the box; if that is known, its result counts."""
    state = state._replace(phase="search")
    start = p.box(state).clamp(state.first or ())
    known = [s for s in state.samples if s.k == start]
    if not known:
        return state._replace(asked=start), {"rule": "first configuration"}
    if good(p, state, known[-1]):
        return fewer(p, state._replace(kept=start))
    return proceed(p, state)


def fewer(p: AuTraScale, state: State) -> tuple[State, Why]:
    """Something met all: it is held, once `trims` runs were tried with fewer slots.

    Where a decision was kept back, what met all may lie outside the box, and is held as it is.
    """
    kept = state.kept
    assert kept is not None
    if state.trims < p.trims and kept in p.box(state):
        seed = (state.seed, len(state.samples))
        found = trim(p.box(state), state.samples, kept, p.target_latency_s, seed=seed)
        if found is not None:
            told = {"kept": named(state.topology, kept), "saving": found.saving, "probability": found.probability}
            state = state._replace(phase="trim", asked=found.k, trims=state.trims + 1)
            return state, {"rule": "fewer slots", **told}
    return state._replace(phase="hold", asked=kept, met=True), {"rule": "meets all"}


def proceed(p: AuTraScale, state: State) -> tuple[State, Why]:
    """What to run next by expected improvement; without hope of one, the best that ran."""
    box, seed = p.box(state), (state.seed, len(state.samples))
    if state.iterations >= p.max_iterations:
        return settle(p, state, "iterations are spent")
    more: Why = {}
    if state.phase == "transfer":
        old = blend(
            state.library, state.rate or 0.0, box, p.search, state.samples,
            models=p.transfer if p.transfer in MODELS else MODELS[0], align=p.align,
        )  # fmt: skip
        more["old rates"] = {f"{model.rate:g}": round(weight, 4) for weight, model, _ in old.parts}
        found = transferred(old, state.samples, p.search, p.levels, incumbent=p.incumbent, seed=seed)
    else:
        found = p.search.propose(box, state.samples, seed=seed)
    if found is None or found.improvement < LEAST:
        if state.phase == "transfer":  # the old model sees no hope: what was really run may
            return proceed(p, state._replace(phase="search"))
        return settle(p, state, "no improvement expected")
    more |= {"posterior mean": found.mean, "sigma": found.sigma, "expected improvement": found.improvement}
    return state._replace(asked=found.k), {"rule": "expected improvement", **more}


def settle(p: AuTraScale, state: State, rule: str) -> tuple[State, Why]:
    in_time = [s for s in state.samples if met(p, state, s)]
    chosen = max(in_time or state.samples, key=lambda s: s.score)
    return state._replace(phase="hold", asked=chosen.k, met=False), {"rule": f"{rule}: best that ran"}
