"""The quality of searches over 30 simulated jobs: real runs, slots and score; without timing, on any machine."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from functools import cache
from statistics import fmean
from typing import Any

from benchmarks import Claim
from benchmarks import _bo_chains as chains
from benchmarks import _bo_jobs as jobs
from benchmarks import _bo_results as results
from benchmarks import _bo_searches as searches
from dspkit.bo import Model

SEEDS, NOISES = range(30), 3
CHAINS, REPEATS = range(60), range(10)


def runs_over_skopt() -> Claim:
    """Real runs until QoS and threshold, mean of 30 jobs, over skopt's with its defaults; the paper's method."""
    return _ratio("runs", "paper", "skopt", 1.0)


def slots_over_skopt() -> Claim:
    """Slots finally used, over skopt's."""
    return _ratio("slots", "paper", "skopt", 1.0)


def runs_over_random() -> Claim:
    """The same over random search: mean difference and its 95 % interval, as a share of random search's runs."""
    return _bound("runs", "paper", "random")


def slots_over_random() -> Claim:
    """Slots finally used, over random search's."""
    return _bound("slots", "paper", "random")


def score_over_drs() -> Claim:
    """Final score less that of DRS, its better variant job by job: the lower end of a 95 % interval of the mean.

    DRS begins with one instance each.
    """
    return _over_drs("paper", "")


def score_over_drs_from_base() -> Claim:
    """The same if DRS begins at the throughput base, which our searches know, too."""
    return _over_drs("paper", " from the base")


def score_over_drs_from_most() -> Claim:
    """The same if DRS begins with the most instances of each; it keeps them if they meet the latency."""
    return _over_drs("paper", " from the most")


def monotone_score_over_drs_from_base() -> Claim:
    """Option (a) against DRS from the base."""
    return _over_drs("monotone", " from the base")


def trimmed_score_over_drs_from_base() -> Claim:
    """Options (a) and (b), then four runs with fewer slots; mean of three searches with other noise for each job."""
    return _over_drs_by_noise("careful, trimmed", truly=False)


def careful_true_score_over_drs_from_base() -> Claim:
    """Options (a) and (b); what each keeps is scored by 20 more trials, 0 if it misses latency or rate there."""
    return _over_drs_by_noise("careful", truly=True)


def trimmed_true_score_over_drs_from_base() -> Claim:
    """The same with four runs with fewer slots."""
    return _over_drs_by_noise("careful, trimmed", truly=True)


def trimmed_score_over_careful_drs_from_base() -> Claim:
    """The same against a DRS that measures as long as ours, until its latency is met with 95 % confidence."""
    return _over_drs_by_noise("careful, trimmed", truly=False, drs="careful DRS")


def careful_true_score_over_careful_drs_from_base() -> Claim:
    """True scores against that DRS, as option (b) helps both searches."""
    return _over_drs_by_noise("careful", truly=True, drs="careful DRS")


def transfer_runs_over_scratch() -> Claim:
    """Real runs at a rate 1.25 to 2 times the old, with the old model and a monotone prior, over from scratch."""
    return _ratio("runs", "transfer, monotone", "scratch", 0.6)


def transfer_slots_over_scratch() -> Claim:
    """Slots finally used, the same."""
    return _ratio("slots", "transfer, monotone", "scratch", 1.0)


def literal_transfer_runs_over_scratch() -> Claim:
    """Real runs of the paper's transfer (constant prior) over its search from scratch with the whole bootstrap set."""
    return _ratio("runs", "transfer", "scratch, whole bootstrap", 0.6)


def literal_transfer_slots_over_scratch() -> Claim:
    """Slots finally used, the same."""
    return _ratio("slots", "transfer", "scratch, whole bootstrap", 1.0)


def monotone_runs_over_constant() -> Claim:
    """Option (a): real runs with a monotone prior from the base alone, over the paper's way."""
    return _ratio("runs", "monotone", "paper", 1.0)


def sure_stop_misses() -> Claim:
    """Option (b): share of jobs whose kept configuration misses the target in 20 more trials.

    95 % are asked for; of 30 jobs more than 4 then miss by chance once in sixty times.
    """
    missed = {f"{way} misses": 1 - fmean(_kept(way)) for way in ("paper", "sure")}  # other names than the ways' own
    return Claim(
        missed["sure misses"], "share", target=4 / 30, better="lower", detail={**missed, **_summary("paper", "sure")}
    )


def weighted_runs_over_nearest() -> Claim:
    """Option (c): real runs with three old models by weight, over the nearest of them alone."""
    return _ratio("runs", "transfer, weighted of 3", "transfer, nearest of 3", 1.0)


def weighted_monotone_slots_over_nearest() -> Claim:
    """Options (a) and (c) together: slots finally used with three old models by weight, over the nearest alone."""
    return _ratio("slots", "transfer, monotone, weighted of 3", "transfer, monotone", 1.0)


def regret_over_best_rival() -> Claim:
    """Regret of F after 30 runs on chains of queues, over that of the best rival; stored rows, as many as there are.

    Rivals: scikit-optimize, Optuna (Parzen estimator, Gaussian process), SMAC, BoTorch (LogEI of the score, and of the
    latency as ours); all begin with the base.
    """
    return _over_rivals("regret_30", 0.5)


def runs_to_two_percent_over_best_rival() -> Claim:
    """Runs until F is within 2 % of the best there is (31 if never), over the best rival's."""
    return _over_rivals("runs", 0.6)


def regret_over_random() -> Claim:
    """Regret of F after 30 runs over that of random search."""
    return _over_rivals("regret_30", 0.5, ("random",))


def transfer_runs_to_two_percent_over_scratch() -> Claim:
    """Runs until within 2 % with guarded transfer from 0.6 and 0.8 times the rate, over from scratch; twelve chains."""
    return _transfer_ratio("two rates", 0.6)


def misleading_transfer_runs_over_scratch() -> Claim:
    """The same with models of another job: the guard against harm."""
    return _transfer_ratio("another job", 1.05)


def stopping_misses() -> Claim:
    """Share of searches that stop (stated error 5 %) with a configuration that truly misses its target; 24 searches.

    Measurements have 5 % of noise. More than 4 of 24 are missed by chance in one of a hundred cases.
    """
    ended = [chains.stopped(chains.Chain(n, seed, 0.05), error=0.05) for n in range(100, 112) for seed in (1, 3)]
    decided = [e for e in ended if e.missed is not None]
    missed = fmean(bool(e.missed) for e in decided) if decided else math.nan
    detail = {"decided": len(decided) / len(ended), "runs": fmean(e.runs for e in ended)}
    return Claim(missed, "share", target=4 / 24, better="lower", detail=detail)


def _over_rivals(what: str, target: float, rivals: tuple[str, ...] = chains.RIVALS) -> Claim:
    """Make missing rows for DSPKIT_BO_MINUTES, our own in any case, and compare what is there."""
    minutes = float(os.environ.get("DSPKIT_BO_MINUTES", "10"))
    results.complete(rivals, len(CHAINS), len(REPEATS), minutes / 3)
    results.complete_beside(("ours",), rivals)
    found = results.compare(what, rivals=rivals)
    detail: dict[str, Any] = {
        "chains": found.chains,
        "searches": found.searches,
        "low": found.low,
        "high": found.high,
        **found.means,
    }
    if found.absent:
        detail["not installed or not run"] = ", ".join(found.absent)
    return Claim(found.ratio, "x", target=target, better="lower", detail=detail)


@cache
def _transfer_ratio(kind: str, target: float) -> Claim:
    pairs = [chains.transfer_runs(n, seed, kind) for n in range(100, 112) for seed in (0, 1)]
    scratch, with_old = (fmean(column) for column in zip(*pairs, strict=True))
    mean, half = jobs.interval([b - a for a, b in pairs])
    detail = {"scratch": scratch, "transfer": with_old, "difference": mean, "half": half}
    return Claim(with_old / scratch, "x", target=target, better="lower", detail=detail)


@cache
def _models(seed: int) -> tuple[Model, ...]:
    """Of the old rate, and of 0.6 and 0.8 times it."""
    old = jobs.pair(seed)[0]
    return tuple(searches.learned(j) for j in (old, jobs.beside(old, 0.6), jobs.beside(old, 0.8)))


_BY_NOISE: dict[str, Callable[[jobs.Job], searches.Outcome]] = {
    "monotone": lambda j: searches.ours(j, prior="monotone", start="base"),
    "careful": lambda j: searches.ours(j, prior="monotone", start="base", confidence=0.95),
    "careful, trimmed": lambda j: searches.ours(j, prior="monotone", start="base", confidence=0.95, trims=4),
    "DRS true": lambda j: searches.drs(j, "true", "base"),
    "DRS observed": lambda j: searches.drs(j, "observed", "base"),
    "careful DRS true": lambda j: searches.drs(j, "true", "base", 0.95),
    "careful DRS observed": lambda j: searches.drs(j, "observed", "base", 0.95),
}
_WAYS: dict[str, Callable[[int], searches.Outcome]] = {
    "paper": lambda s: searches.ours(jobs.job(s)),
    "monotone": lambda s: searches.ours(jobs.job(s), prior="monotone", start="base"),
    "sure": lambda s: searches.ours(jobs.job(s), confidence=0.95),
    "skopt": lambda s: searches.skopt(jobs.job(s)),
    "random": lambda s: searches.at_random(jobs.job(s)),
    **{
        f"DRS {rates}{told}": lambda s, rates=rates, start=start: searches.drs(jobs.job(s), rates, start)  # type: ignore[misc]
        for rates in ("true", "observed")
        for start, told in (("one", ""), ("base", " from the base"), ("most", " from the most"))
    },
}
_AT_NEW_RATE: dict[str, Callable[[int], searches.Outcome]] = {
    "scratch": lambda s: searches.ours(jobs.pair(s)[1]),
    "scratch, whole bootstrap": lambda s: searches.ours(jobs.pair(s)[1], whole=True),
    "scratch, monotone": lambda s: searches.ours(jobs.pair(s)[1], prior="monotone", start="base"),
    "transfer": lambda s: searches.transferred(jobs.pair(s)[1], _models(s)[:1]),
    "transfer, monotone": lambda s: searches.transferred(jobs.pair(s)[1], _models(s)[:1], prior="monotone"),
    "transfer, monotone, weighted of 3": lambda s: searches.transferred(
        jobs.pair(s)[1], _models(s), models="weighted", prior="monotone"
    ),
    "transfer, nearest of 3": lambda s: searches.transferred(jobs.pair(s)[1], _models(s)),
    "transfer, weighted of 3": lambda s: searches.transferred(jobs.pair(s)[1], _models(s), models="weighted"),
}


@cache
def _outcomes(way: str) -> list[searches.Outcome]:
    return [{**_WAYS, **_AT_NEW_RATE}[way](seed) for seed in SEEDS]


@cache
def _kept(way: str) -> list[bool]:
    return [_again(s, o.k)[1] for s, o in zip(SEEDS, _outcomes(way), strict=True)]


@cache
def _again(seed: int, k: tuple[int, ...]) -> tuple[float, bool]:
    return jobs.job(seed).again(k)


@cache
def _by_noise(way: str) -> list[list[searches.Outcome]]:
    """For each job, searches that differ by noise alone."""
    return [[_BY_NOISE[way](jobs.job(s).other_noise(n)) for n in range(NOISES)] for s in SEEDS]


def _over_drs_by_noise(way: str, *, truly: bool, drs: str = "DRS") -> Claim:
    """Return the lower end of a 95 % interval over jobs of our mean score less that of DRS's better variant.

    `truly`: what was kept is measured again; else the search's own last measurement counts. Missed QoS is 0 in both.
    """

    def worth(seed: int, o: searches.Outcome) -> float:
        value, met = _again(seed, o.k) if truly else (o.score, o.met)
        return value if met else 0.0

    gains, rivals = [], (f"{drs} true", f"{drs} observed")
    for i, s in enumerate(SEEDS):
        theirs = [max(worth(s, o) for o in both) for both in zip(*(_by_noise(r)[i] for r in rivals), strict=True)]
        gains.append(fmean(worth(s, o) for o in _by_noise(way)[i]) - fmean(theirs))
    mean, half = jobs.interval(gains)
    ways = ("monotone", way, *rivals)
    return Claim(mean - half, "F", target=0.0, detail={"mean": mean, "half": half, **{w: _of_noise(w) for w in ways}})


def _of_noise(way: str) -> dict[str, float]:
    found = [(s, o) for s, outcomes in zip(SEEDS, _by_noise(way), strict=True) for o in outcomes]
    again = [_again(s, o.k) for s, o in found]
    told = {f: fmean(getattr(o, f) for _, o in found) for f in ("runs", "slots", "score", "met")}
    told |= {"true score": fmean(value for value, _ in again), "truly met": fmean(met for _, met in again)}
    return {name: round(value, 3) for name, value in told.items()}


def _summary(*ways: str) -> dict[str, dict[str, float]]:
    """Means by way: runs, slots, score, share of jobs whose QoS was met."""
    fields = ("runs", "slots", "score", "met")
    return {w: {f: round(fmean(getattr(o, f) for o in _outcomes(w)), 3) for f in fields} for w in ways}


def _ratio(what: str, ours: str, theirs: str, target: float) -> Claim:
    """Mean over mean; the detail has the mean difference with its 95 % interval."""
    a, b = ([float(getattr(o, what)) for o in _outcomes(way)] for way in (ours, theirs))
    mean, half = jobs.interval([x - y for x, y in zip(a, b, strict=True)])
    group = _WAYS if ours in _WAYS else _AT_NEW_RATE
    detail = {
        "difference": mean,
        "half": half,
        **_summary(*(w for w in group if w in (ours, theirs) or "scratch" in w)),
    }
    return Claim(fmean(a) / fmean(b), "x", target=target, better="lower", detail=detail)


def _over_drs(way: str, start: str) -> Claim:
    """Return the score of DRS; one that ends without QoS counts as 0."""
    rivals = [f"DRS {rates}{start}" for rates in ("true", "observed")]
    drs = [max(o.score if o.met else 0.0 for o in both) for both in zip(*map(_outcomes, rivals), strict=True)]
    mean, half = jobs.interval([a.score - b for a, b in zip(_outcomes(way), drs, strict=True)])
    return Claim(mean - half, "F", target=0.0, detail={"mean": mean, "half": half, **_summary(way, *rivals)})


def _bound(what: str, ours: str, theirs: str) -> Claim:
    """Return the upper end of the 95 % interval of the mean difference, over the rival's mean; below 0 is better."""
    a, b = ([float(getattr(o, what)) for o in _outcomes(way)] for way in (ours, theirs))
    mean, half = jobs.interval([x - y for x, y in zip(a, b, strict=True)])
    detail = {"difference": mean, "half": half, **_summary(ours, theirs)}
    return Claim((mean + half) / fmean(b), "share", target=0.0, better="lower", detail=detail)
