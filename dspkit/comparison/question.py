"""What is compared: every policy on every job, plant and load with every seed, as a list of runs.

Policies, loads and jobs come by name. Where one depends on the others it is a function: a load of `(app, seed)`, a
policy of a `Case`. Loads with a seed of their own get another one for each seed. Runs of one seed share all that is
random: moments of bursts and the noise of the plant; that is what makes them pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any, NamedTuple

from .. import policies as known_policies
from ..core import Deployment, Policy, Topology
from ..errors import KnobError
from ..plant import Plant
from ..simulator.simulator import by_source, offered
from ..topologies import App
from ..workload import Workload
from .oracle import fewest, needs
from .runs import Loads, Rules, Run

ROOM = 0.8  # part of what instances can do that a job is made for at first
ORACLE = "oracle"


class Case(NamedTuple):
    """What a policy may be made for: the job on its plant, its load, seed and the rules of the comparison."""

    app: App
    workload: Loads
    seed: int
    rules: Rules
    load: Any = None  # what `workload` was made of, for other seeds; None: of itself


Made = Policy | tuple[Policy, Deployment]  # with what shall run at first
LoadMaker = Callable[[App, int], Loads]


def runs_of(
    policies: Any, workloads: Any, topologies: Any, plants: Any, seeds: Iterable[int], rules: Rules
) -> list[Run]:
    """All runs, those of a case side by side, with the oracle's first."""
    named, loads, jobs = _policies(policies), _loads(workloads), list(_jobs(topologies, plants, rules))
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
                    found.append(Run((ORACLE, title, job, plant), seed, None, app, workload, None, rules))
                except Exception as error:
                    failed, workload = said(error), app.workload
                for name, maker in named.items():
                    policy, first, wrong = None, start, failed
                    if case is not None and start is not None:
                        try:
                            policy, first = _made(maker, case, start)
                        except Exception as error:
                            wrong = said(error)
                    found.append(Run((name, title, job, plant), seed, policy, app, workload, first, rules, wrong))
    return found


def said(error: BaseException) -> str:
    """An error in a line, with its notes."""
    return " ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", [])])[:2000]


def seeded(load: Any, app: App, seed: int) -> Loads:
    """The load of this job and seed: made by a function, or the same with other random moments."""
    made = load if isinstance(load, (Workload, Mapping)) else load(app, seed)
    if isinstance(made, Mapping):
        return {source: _other(one, seed) for source, one in made.items()}
    by_source(app.topology, made)
    return made if made is not load else _other(made, seed)


def _other(load: Any, seed: int) -> Any:
    """Every random shape in a load with its seed moved on."""
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
    """What keeps up with the load of the beginning, with a little room: nobody starts with an advantage."""
    import numpy as np

    rates = offered(by_source(app.topology, workload), app.topology, np.array([0.0]))[0] / ROOM
    asked = needs(app.topology, app.plant, rates)
    counts = {n: fewest(app.topology, app.plant, n, asked[n]) for n in app.topology.order}
    return app.deployment(counts)


def _made(maker: Any, case: Case, start: Deployment) -> tuple[Policy, Deployment]:
    made = maker if isinstance(maker, Policy) and not isinstance(maker, type) else maker(case)
    policy, first = made if isinstance(made, tuple) else (made, start)
    if not isinstance(policy, Policy):
        raise KnobError(f"{policy!r}"[:80], expected="a policy", fix="return one, or (policy, deployment)")
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
            raise KnobError("two policies of one name", expected="a name for each", fix="pass {name: policy}")
    else:
        named = {}
    for name, p in named.items():
        if isinstance(p, str):
            named[name] = known_policies.get(p)()
        elif isinstance(p, type) or not (isinstance(p, Policy) or callable(p)):
            raise KnobError(f"policy {p!r}"[:80], expected="a policy that is made", fix="as in {'ds2': DS2()}")
    if not named or ORACLE in named:
        raise KnobError(f"policies {given!r}"[:80], expected="{name: policy}", fix=f"and none named {ORACLE!r}")
    return _by_text(named, "policies")


def _loads(given: Any) -> dict[str, Any]:
    """By name; None is each job's own."""
    if given is None:
        return {"own": None}
    if isinstance(given, Workload):
        return {type(given).__name__.lower(): given}
    if not isinstance(given, Mapping) or not given:
        raise KnobError(f"workloads {given!r}"[:80], expected="{name: load}", fix="or None for each job's own")
    for name, load in given.items():
        if not (isinstance(load, (Workload, Mapping)) or (callable(load) and not isinstance(load, type))):
            raise KnobError(f"workload {name!r}: {load!r}"[:80], expected="a load", fix="or a function of (app, seed)")
    return _by_text(given, "workloads")


def _jobs(given: Any, plants: Any, rules: Rules) -> Iterator[tuple[str, str, App]]:
    """Name of the job, name of the plant, and both as an application."""
    named = given if isinstance(given, Mapping) else None
    if named is None:
        listed = [given] if isinstance(given, (App, Topology)) else list(given) if isinstance(given, Sequence) else []
        named = {getattr(j, "name", f"job {i + 1}" if len(listed) > 1 else "job"): j for i, j in enumerate(listed)}
        if len(named) < len(listed):
            raise KnobError("two jobs of one name", expected="a name for each", fix="pass {name: job}")
    if not named:
        raise KnobError(
            f"topologies {given!r}"[:80], expected="{name: App or Topology}", fix="as in [topologies.yahoo()]"
        )
    for name, job in _by_text(named, "topologies").items():
        mine = plants.get(name) if isinstance(plants, Mapping) else plants
        variants = mine if isinstance(mine, Mapping) else {"own" if mine is None else "plant": mine}
        for title, plant in _by_text(variants, "plants").items():
            yield name, title, _app(name, job, plant, rules)


def _app(name: str, job: Any, plant: Any, rules: Rules) -> App:
    if not isinstance(plant, Plant | None):
        raise KnobError(f"plant {plant!r}"[:80], expected="a Plant", fix="as in {'job': Plant(...)}")
    if isinstance(job, App):
        return job if plant is None else replace(job, plant=plant.check(job.topology))
    if not isinstance(job, Topology) or plant is None:
        raise KnobError(f"job {name!r}: {job!r}"[:80], expected="an App, or a Topology with a plant", fix="pass plants")
    if rules.slo_s is None:
        raise KnobError(f"job {name!r} without a target", expected="slo_s, the latency to keep", fix="as in slo_s=1")
    from ..workload import Constant

    return App(name, job, plant.check(job), Constant(0.0), rules.slo_s, "")


def _seeds(seeds: Any) -> list[int]:
    numbers = [seeds] if isinstance(seeds, int) or not isinstance(seeds, Iterable) else list(seeds)
    if not numbers or not all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in numbers):
        raise KnobError(f"seeds {numbers!r}"[:80], expected="whole numbers from 0 up", fix="as in range(20)")
    return list(dict.fromkeys(numbers))


def _by_text(named: Mapping[Any, Any], what: str) -> dict[str, Any]:
    if wrong := [n for n in named if not isinstance(n, str) or not n.strip()]:
        raise KnobError(f"{what} named {wrong[0]!r}", expected="words", fix="as in {'mine': ...}")
    return dict(named)
