"""Searches for a configuration of the jobs of `_bo_jobs`: ours, scikit-optimize's, random, DRS, transfer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._bo_jobs import MOST, Job
from dspkit.bo import Library, Model, Optimizer, Sample, Search, stop_threshold
from dspkit.bo.search import trim
from dspkit.bo.transfer import blend, recommend
from dspkit.policies.drs import allocate
from dspkit.policies.ds2 import demands

CAP = 60  # most real runs of a search
THRESHOLD = stop_threshold(0.8, 1.0)


@dataclass(frozen=True)
class Outcome:
    """The result of a search: real runs, the configuration it keeps, and whether that meets latency and rate."""

    runs: int
    slots: int
    score: float
    met: bool
    k: tuple[int, ...] = ()


def _search(
    job: Job,
    ask: Callable[[list[Sample]], Any],
    tell: Callable[[Sample], object],
    least: int = 0,
    confidence: float = 0.0,
    trims: int = 0,
) -> Outcome:
    """Search until a run meets latency and rate with a score at the threshold, or runs are spent; then trim."""
    told: list[tuple[Sample, bool]] = []
    ended: int | None = None
    for turn in range(CAP):
        k = ask([s for s, _ in told]) if ended is None else _fewer(job, told)
        if k is None:
            break
        sample, met, _ = job.run(k, turn, confidence)
        told.append((sample, met))
        tell(sample)
        if ended is None and turn + 1 >= least and any(m and s.score >= THRESHOLD for s, m in told):
            ended = turn
        if ended is not None and turn - ended >= trims:
            break
    final, met = max(told, key=lambda pair: (pair[1], pair[0].score))
    return Outcome(len(told), sum(final.k), final.score, met, final.k)


def _fewer(job: Job, told: Sequence[tuple[Sample, bool]]) -> tuple[int, ...] | None:
    """Search with fewer slots than the best run that met everything."""
    samples = [s for s, _ in told]
    kept = max((s for s, met in told if met), key=lambda s: s.score)
    found = trim(job.lattice, samples, kept.k, job.target_latency_s, seed=(job.seed, len(told)))
    return found.k if found else None


def ours(
    job: Job,
    *,
    start: str = "bootstrap",
    whole: bool = False,
    confidence: float = 0.0,
    trims: int = 0,
    **knobs: Any,
) -> Outcome:
    """Search by `dspkit.bo`, from the "bootstrap" set or the "base"; `whole`: that whole set runs first, as printed."""
    search = Search(target_latency_s=job.target_latency_s, **{"prior": "constant", "xi": 0.01, **knobs})
    made = Optimizer(job.lattice, search, bootstrap=start == "bootstrap", seed=job.seed)
    least = len(job.lattice.bootstrap(6)) if whole else 0
    tell = lambda s: made.tell(s.k, s.score, latency_s=s.latency_s)  # noqa: E731
    return _search(job, lambda _: made.ask(), tell, least, confidence, trims)


def skopt(job: Job) -> Outcome:
    """Search by scikit-optimize with its defaults."""
    from skopt import Optimizer as Theirs

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = Theirs(job.lattice.dimensions(), random_state=job.seed)
        return _search(job, lambda _: [int(v) for v in made.ask()], lambda s: made.tell(list(s.k), -s.score))


def at_random(job: Job) -> Outcome:
    """Search by uniformly random configurations of the same box."""
    drawn = np.random.default_rng(job.seed)
    return _search(job, lambda _: tuple(job.lattice.draw(drawn, 1)[0].tolist()), lambda _: None)


def drs(job: Job, rates: str, start: str = "one", confidence: float = 0.0) -> Outcome:
    """Search until the measured latency is met or nothing changes, at most twelve times.

    From "one" instance each, from the throughput "base", or from the "most" of each.
    """
    k, turn = {"one": (1,) * len(job.base), "base": job.base, "most": job.lattice.max_parallelism}[start], 0
    for turn in range(12):
        sample, met, seen = job.run(k, turn, confidence)
        in_time = sample.latency_s is not None and sample.latency_s <= job.target_latency_s
        if met if confidence else in_time:
            break
        arrivals = [demands(job.topology, seen)[n] or 0.0 for n in job.topology.order]
        each = [seen.operators[n] for n in job.topology.order]
        mu = [m.true_rate if rates == "true" else m.processing_rate / m.parallelism for m in each]
        new = tuple(
            allocate(
                arrivals,
                [v or 1.0 for v in mu],
                job.rate,
                target_latency_s=job.target_latency_s,
                max_parallelism=[MOST] * len(k),
            )
        )
        if new == k:
            break
        k = new
    return Outcome(turn + 1, sum(sample.k), sample.score, met, sample.k)


def learned(job: Job, levels: int = 6) -> Model:
    """Return the model of a whole search at this rate: its bootstrap set and the further runs."""
    made = Optimizer(job.lattice, Search.paper(target_latency_s=job.target_latency_s), levels=levels, seed=job.seed)
    for turn in range(levels + len(job.base) + 10):
        k = made.ask()
        if k is None:
            break
        sample, met, _ = job.run(k, 300 + turn)
        made.tell(k, sample.score, latency_s=sample.latency_s)
        if met and sample.score >= THRESHOLD and made.proposal:
            break
    return Model(job.rate, job.base, job.lattice.max_parallelism, tuple(made.samples))


def transferred(job: Job, old: Sequence[Model], **options: Any) -> Outcome:
    """Search by Algorithm 2 at this job's rate with models of others, then by Algorithm 1 on real runs."""
    library, levels = Library(job.topology.order, tuple(old)), 6
    search = Search(target_latency_s=job.target_latency_s, prior=options.pop("prior", "constant"), xi=0.01)
    incumbent = options.pop("incumbent", "measured")

    def ask(samples: list[Sample]) -> Any:
        if not samples:
            return job.base
        found = None
        if len(samples) <= levels + len(job.base):
            mixed = blend(library, job.rate, job.lattice, search, samples, **options)
            found = recommend(mixed, samples, search, levels, incumbent=incumbent, seed=(job.seed, len(samples)))
        if found is None or found.improvement < 1e-6:
            found = search.propose(job.lattice, samples, seed=(job.seed, len(samples)))
        return found.k if found else None

    return _search(job, ask, lambda _: None)
