"""The list of runs of a comparison: every policy on every job, plant and load with every seed.

Policies, loads and jobs are given by name. One that depends on the others is a function: a load of `(app, seed)`, a
policy of a `Case`. Loads with a seed of their own get another one per seed. Runs with the same seed share all random
numbers, those of bursts and of the plant's noise, so that policies are compared in pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

from .. import policies as known_policies
from ..apps import App
from ..core import ArgumentError, Deployment, Policy, Topology
from ..core.validation import is_whole
from ..simulator import Plant
from ..simulator.simulator import by_source, offered
from ..workload import Workload
from .oracle import fewest, required_rates
from .runs import ComparisonRun, Loads, Rules

ROOM = 0.8  # utilisation of the initial deployment
ORACLE = "oracle"


class Case(NamedTuple):
    """The input of a function that makes a policy: one job on its plant, under one load, with one seed.

    Parameters
    ----------
    app : App
        The job on its plant.
    workload : Workload or mapping
        Its load with this seed.
    seed : int
        Seed of the run.
    rules : Rules
        The rules of the comparison.
    load : optional
        The origin of `workload`, from which loads with other seeds are made; None for `workload` itself.

    Examples
    --------
    >>> from dspkit import apps
    >>> app = apps.tweet_words()
    >>> Case(app, app.workload, 1, Rules(duration_s=600.0)).rules.target_latency_s is None
    True
    """

    app: App
    workload: Loads
    seed: int
    rules: Rules
    load: Any = None


Made = Policy | tuple[Policy, Deployment]  # with the initial deployment
LoadMaker = Callable[[App, int], Loads]


def runs_of(
    policies: Any, workloads: Any, apps: Any, plants: Any, seeds: Iterable[int], rules: Rules
) -> list[ComparisonRun]:
    """Return all runs, case by case, each with the oracle's run first."""
    named, loads, jobs = _policies(policies), _loads(workloads), list(_jobs(apps, plants, rules))
    numbers = _seeds(seeds)
    found = []
    for job, plant, app in jobs:
        for title, load in loads.items():
            for seed in numbers:
                case: Case | None = None
                start, failed = None, ""
                try:
                    made_of = app.workload if load is None else load
                    workload = seeded(made_of, app, seed)
                    case = Case(app, workload, seed, rules, made_of)
                    start = started(app, workload)
                    found.append(ComparisonRun((ORACLE, title, job, plant), seed, None, app, workload, None, rules))
                except Exception as error:
                    failed, workload = error_text(error), app.workload
                for name, maker in named.items():
                    policy, first, wrong = None, start, failed
                    if case is not None and start is not None:
                        try:
                            policy, first = _made(maker, case, start)
                        except Exception as error:
                            wrong = error_text(error)
                    found.append(
                        ComparisonRun((name, title, job, plant), seed, policy, app, workload, first, rules, wrong)
                    )
    return found


def error_text(error: BaseException) -> str:
    """Return an error in one line, with its notes."""
    return " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])[:2000]


def seeded(load: Any, app: App, seed: int) -> Loads:
    """Return the load of this job and seed: the result of a function, or a load with other random numbers."""
    made = load if isinstance(load, (Workload, Mapping)) else load(app, seed)
    if isinstance(made, Mapping):
        return {source: _other(one, seed) for source, one in made.items()}
    by_source(app.topology, made)
    return made if made is not load else _other(made, seed)


def _other(load: Any, seed: int) -> Any:
    """Return the load with `seed` added to the seed of every random shape."""
    if isinstance(load, tuple):
        return tuple(_other(one, seed) for one in load)
    if not isinstance(load, Workload) or not is_dataclass(load):
        return load
    changed: dict[str, Any] = {}
    for f in fields(load):
        value = getattr(load, f.name)
        if f.name == "seed":
            changed["seed"] = value + seed
        elif isinstance(value, (Workload, tuple)) and (other := _other(value, seed)) != value:
            changed[f.name] = other
    return replace(load, **changed) if changed else load


def started(app: App, workload: Loads) -> Deployment:
    """Return the initial deployment of all policies: the fewest instances for the initial load at 80 % utilisation.

    Parameters
    ----------
    app : App
        The job on its plant.
    workload : Workload or mapping
        Its load.

    Examples
    --------
    >>> from dspkit import apps, workload
    >>> started(apps.tweet_words(), workload.Constant(100)).instances
    5
    """
    import numpy as np

    rates = offered(by_source(app.topology, workload), app.topology, np.array([0.0]))[0] / ROOM
    asked = required_rates(app.topology, app.plant, rates)
    counts = {n: fewest(app.topology, app.plant, n, asked[n]) for n in app.topology.order}
    return app.deployment(counts)


def _made(maker: Any, case: Case, start: Deployment) -> tuple[Policy, Deployment]:
    made = maker if isinstance(maker, Policy) and not isinstance(maker, type) else maker(case)
    policy, first = made if isinstance(made, tuple) else (made, start)
    if not isinstance(policy, Policy):
        raise ArgumentError(f"{policy!r}"[:80], expected="a policy", fix="return one, or (policy, deployment)")
    return policy, case.app.topology.check(first)


def _policies(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        named = dict(given)
    elif isinstance(given, (str, Policy)):
        return _policies([given])
    elif isinstance(given, Sequence):
        made = [known_policies.get(p)() if isinstance(p, str) else p for p in given]
        named = {getattr(p, "name", f"policy {i}"): p for i, p in enumerate(made)}
        if len(named) < len(made):
            raise ArgumentError("two policies of one name", expected="a name for each", fix="pass {name: policy}")
    else:
        named = {}
    for name, p in named.items():
        if isinstance(p, str):
            named[name] = known_policies.get(p)()
        elif isinstance(p, type) or not (isinstance(p, Policy) or callable(p)):
            raise ArgumentError(
                f"policy {p!r}"[:80], expected="a policy that is made, not a class", fix="as in {'ds2': DS2()}"
            )
    if not named or ORACLE in named:
        raise ArgumentError(f"policies {given!r}"[:80], expected="{name: policy}", fix=f"and none named {ORACLE!r}")
    return _by_text(named, "policies")


def _loads(given: Any) -> dict[str, Any]:
    """Return the loads by name; None stands for each job's own."""
    if given is None:
        return {"own": None}
    if isinstance(given, Workload):
        return {type(given).__name__.lower(): given}
    if not isinstance(given, Mapping) or not given:
        raise ArgumentError(f"workloads {given!r}"[:80], expected="{name: load}", fix="or None for each job's own")
    for name, load in given.items():
        if not (isinstance(load, (Workload, Mapping)) or (callable(load) and not isinstance(load, type))):
            raise ArgumentError(
                f"workload {name!r}: {load!r}"[:80], expected="a load", fix="or a function of (app, seed)"
            )
    return _by_text(given, "workloads")


def _jobs(given: Any, plants: Any, rules: Rules) -> Iterator[tuple[str, str, App]]:
    """Yield the name of each job, the name of its plant, and both as an application."""
    named = given if isinstance(given, Mapping) else None
    if named is None:
        listed = [given] if isinstance(given, (App, Topology)) else list(given) if isinstance(given, Sequence) else []
        named = {getattr(j, "name", f"job {i + 1}" if len(listed) > 1 else "job"): j for i, j in enumerate(listed)}
        if len(named) < len(listed):
            raise ArgumentError("two jobs of one name", expected="a name for each", fix="pass {name: job}")
    if not named:
        raise ArgumentError(f"apps {given!r}"[:80], expected="{name: App or Topology}", fix="as in [apps.yahoo()]")
    for name, job in _by_text(named, "apps").items():
        mine = plants.get(name) if isinstance(plants, Mapping) else plants
        variants = mine if isinstance(mine, Mapping) else {"own" if mine is None else "plant": mine}
        for title, plant in _by_text(variants, "plants").items():
            yield name, title, _app(name, job, plant, rules)


def _app(name: str, job: Any, plant: Any, rules: Rules) -> App:
    if not isinstance(plant, Plant | None):
        raise ArgumentError(f"plant {plant!r}"[:80], expected="a Plant", fix="as in {'job': Plant(...)}")
    if isinstance(job, App):
        return job.must_be_simulated() if plant is None else replace(job, plant=plant.check(job.topology))
    if not isinstance(job, Topology) or plant is None:
        raise ArgumentError(
            f"job {name!r}: {job!r}"[:80], expected="an App, or a Topology with a plant", fix="pass plants"
        )
    if rules.target_latency_s is None:
        raise ArgumentError(
            f"job {name!r} without a target",
            expected="target_latency_s, the latency to meet",
            fix="as in target_latency_s=1",
        )
    from ..workload import Constant

    return App(name, job, plant.check(job), Constant(0.0), rules.target_latency_s, "")


def _seeds(seeds: Any) -> list[int]:
    numbers = [seeds] if isinstance(seeds, int) or not isinstance(seeds, Iterable) else list(seeds)
    if not numbers or not all(is_whole(s) and s >= 0 for s in numbers):
        raise ArgumentError(f"seeds {numbers!r}"[:80], expected="whole numbers from 0 up", fix="as in range(20)")
    return list(dict.fromkeys(numbers))


def _by_text(named: Mapping[Any, Any], what: str) -> dict[str, Any]:
    if wrong := [n for n in named if not isinstance(n, str) or not n.strip()]:
        raise ArgumentError(f"{what} named {wrong[0]!r}", expected="non-empty strings", fix="as in {'mine': ...}")
    return dict(named)
