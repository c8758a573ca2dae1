"""AuTraScale's evaluation on the simulator: `python -m reproduction.autrascale.study` prints its tables.

The applications are those of `dspkit/apps/autrascale.py`. As in the paper, a configuration runs for ten minutes in the
latency test and for five in the throughput test, of which the first half does not count. The final configuration is
measured again, in a run of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean
from typing import TYPE_CHECKING, Any

from dspkit.apps import App, crowded_word_count, query5, query11, yahoo
from dspkit.bo import Lattice, Library, Model, Sample, Search, score
from dspkit.bo.transfer import blend, recommend
from dspkit.core import BackendBase, Deployment, Policy, Snapshot, control_loop
from dspkit.policies.autrascale import AuTraScale, AuTraScaleState
from dspkit.policies.drs import DRS
from dspkit.policies.ds2 import DS2
from dspkit.simulator import Simulator

if TYPE_CHECKING:
    import pandas as pd


# Tables II and III: slots, latency, iterations, whether QoS was met
PRINTED: dict[tuple[str, str, str], tuple[tuple[int, ...], float, int, bool]] = {
    ("crowded_word_count", "up", "DRS observed"): ((23, 33, 40, 16), 246, 9, False),
    ("crowded_word_count", "up", "DRS true"): ((2, 1, 8, 8), 146, 2, False),
    ("crowded_word_count", "up", "AuTraScale"): ((7, 8, 12, 38), 172, 3, True),
    ("crowded_word_count", "down", "DRS observed"): ((40, 40, 40, 33), 120, 1, True),
    ("crowded_word_count", "down", "DRS true"): ((40, 33, 40, 40), 242, 1, False),
    ("crowded_word_count", "down", "AuTraScale"): ((10, 16, 12, 10), 160, 4, True),
    ("yahoo", "up", "DRS observed"): ((40, 33, 33, 33, 33), 329, 4, False),
    ("yahoo", "up", "DRS true"): ((40, 33, 33, 33, 40), 242, 2, True),
    ("yahoo", "up", "AuTraScale"): ((4, 2, 1, 1, 40), 223.7, 1, True),
    ("yahoo", "down", "DRS observed"): ((40, 33, 33, 33, 33), 276, 2, True),
    ("yahoo", "down", "DRS true"): ((40, 33, 33, 33, 40), 247, 2, True),
    ("yahoo", "down", "AuTraScale"): ((22, 2, 1, 1, 36), 246, 1, True),
}
STARTS: dict[str, dict[str, tuple[int, ...]]] = {
    "crowded_word_count": {"up": (1, 3, 12, 2), "down": (36, 32, 24, 20)},
    "yahoo": {"up": (4, 2, 1, 1, 4), "down": (40, 40, 40, 40, 40)},
}
BASES = {"crowded_word_count": (3, 4, 12, 10), "yahoo": (4, 2, 1, 1, 34)}
THROUGHPUT = {  # job, rate, the paper's final configuration
    "crowded_word_count": (crowded_word_count, 350e3, (3, 4, 12, 10)),
    "yahoo": (yahoo, 60e3, (4, 2, 1, 1, 34)),
    "query5": (query5, 30e3, (1, 18)),
    "query11": (query11, 100e3, (1, 11)),
}
MOST_RUNS = 90
WINDOW_S = 10.0


def options(app: App) -> dict[str, Any]:
    """Return AuTraScale's settings for a job: M = 6 and P_max = 40; for Yahoo 35 and 50, as in the paper's plots.

    Its 40 samples would need a P_max of 68; with 50 there are 22.
    """
    sizes = {"levels": 35, "max_parallelism": 50} if app.name == "yahoo" else {}
    return {"target_latency_s": app.target_latency_s, "running_s": 600.0, "warm_up_s": 300.0, **sizes}


def named(app: App, k: Sequence[int]) -> dict[str, int]:
    return dict(zip(app.topology.order, k, strict=True))


class Rerun(BackendBase):
    """A backend that restarts the job at the end of its log after each change, so that runs are independent trials.

    Otherwise a configuration would drain the backlog of the previous one, and seem late itself.
    """

    def __init__(self, app: App, k: Sequence[int], seed: int):
        self._app, self._seed, self._now, self._since = app, 1000 * seed, 0.0, 0.0
        self._job = simulator(app, k, self._seed)
        self.topology, self.knobs = app.topology, frozenset({"parallelism"})

    @property
    def deployment(self) -> Deployment:
        return self._job.deployment

    def observe(self) -> Snapshot:
        seen = self._job.observe()
        self._now = self._since + seen.t
        return replace(seen, t=self._now)

    def deploy(self, deployment: Deployment) -> None:
        self._seed, self._since = self._seed + 1, self._now
        self._job = simulator(self._app, tuple(deployment.parallelism[n] for n in self.topology.order), self._seed)

    def close(self) -> None:
        super().close()
        self._job.close()


def simulator(app: App, k: Sequence[int], seed: int) -> Simulator:
    return app.simulator(parallelism=named(app, k), seed=seed, tick_s=1.0, window_s=WINDOW_S)


def measure(app: App, k: Sequence[int], seed: int, minutes: int = 10) -> tuple[float, float]:
    """Return throughput and mean latency of a configuration in the second half of a run."""
    job = simulator(app, k, seed)
    seen = [job.observe() for _ in range(int(minutes * 60 / WINDOW_S))]
    late = [s.latency.mean for s in seen[len(seen) // 2 :] if s.latency is not None]
    return fmean(s.throughput for s in seen[len(seen) // 2 :]), fmean(late) if late else float("inf")


def cores(app: App, k: Sequence[int], seed: int, minutes: int = 10) -> float:
    """Return the cores that a configuration uses on average in the second half of a run."""
    job = simulator(app, k, seed)
    seen = [job.observe() for _ in range(int(minutes * 60 / WINDOW_S))]
    return fmean(sum(m.cpu or 0.0 for m in s.operators.values()) for s in seen[len(seen) // 2 :])


def play(
    policy: Any, app: App, start: Sequence[int], *, seed: int = 1, phases: list[str] | None = None
) -> tuple[tuple[int, ...], int, Any, int]:
    """Run the policy until it stops or runs are spent; return last configuration, changes, state and real runs.

    The phase of each real run is appended to `phases`.
    """
    runs = changes = 0
    k: tuple[int, ...] = tuple(start)
    state: Any = None
    each = int(policy.running_s / WINDOW_S)
    for step in control_loop(policy, Rerun(app, start, seed), steps=MOST_RUNS * each, seed=seed):
        state, why = step.state, step.decision.why if step.decision else {}
        k = tuple(step.deployment.parallelism[n] for n in app.topology.order)
        changes += step.rescaled
        ran = not str(why.get("rule", "")).startswith(("measured", "waits"))
        runs += ran
        if ran and phases is not None:
            phases.append(str(why.get("phase", "")))
        if isinstance(policy, AuTraScale):
            if state.phase == "hold":
                return k, state.iterations, state, state.runs
        elif ("recommended" in why and (not step.rescaled or changes >= 12)) or why.get("rule") == "latency is met":
            break
    return k, changes, state, runs


def throughput_table(seed: int = 1, jobs: Sequence[str] = tuple(THROUGHPUT), **knobs: Any) -> pd.DataFrame:
    """Return the throughput phase from one instance each, and DS2 for as long; the paper has at most four rounds.

    `knobs` change AuTraScale, as in `mode="printed"` for Eq. 3 as printed.
    """
    import pandas as pd

    rows = []
    for name in jobs:
        make, rate, printed = THROUGHPUT[name]
        app = make(rate)
        policy = replace(AuTraScale(**options(app)), running_s=300.0, warm_up_s=150.0, max_parallelism=50, **knobs)
        rows.append({"job": name, "rate": rate, "paper": printed, **_throughput_phase(policy, app, seed)})
    return pd.DataFrame(rows)


def _throughput_phase(policy: AuTraScale, app: App, seed: int) -> dict[str, Any]:
    """Run AuTraScale up to its base, then DS2 for twelve intervals of five minutes."""
    base: tuple[int, ...] = ()
    rounds, rule = 0, ""
    for step in control_loop(policy, Rerun(app, (1,) * len(app.topology.order), seed), steps=600, seed=seed):
        if isinstance(step.state, AuTraScaleState) and step.state.phase != "throughput" and step.decision:
            base, rounds, rule = step.state.base or (), len(step.state.tried), step.decision.why["rule"]
            break
    ds2: Policy = DS2(decision_interval_s=300.0)
    ks = [
        s.deployment
        for s in control_loop(ds2, Rerun(app, (1,) * len(app.topology.order), seed), steps=360)
        if s.rescaled
    ]
    last = ks[-1] if ks else Deployment(app.topology.uniform())
    return {
        "AuTraScale": base,
        "rounds": rounds,
        "stopped because": rule,
        "its rate": measure(app, base, seed)[0],
        "DS2": tuple(last.parallelism[n] for n in app.topology.order),
        "DS2 changes": len(ks),
        "DS2 rate": measure(app, tuple(last.parallelism[n] for n in app.topology.order), seed)[0],
    }


METHODS = ("DRS observed", "DRS true", "AuTraScale")


def latency_table(
    seeds: Sequence[int] = (1,), jobs: Sequence[str] = tuple(STARTS), methods: Sequence[str] = METHODS
) -> pd.DataFrame:
    """Return scale-up and scale-down of word count and Yahoo by DRS and AuTraScale, beside Tables II and III."""
    import pandas as pd

    rows = []
    for (job, direction, method), printed in PRINTED.items():
        app = {"crowded_word_count": crowded_word_count, "yahoo": yahoo}[job]()
        for seed in seeds if job in jobs and method in methods else ():
            common: dict[str, Any] = {"target_latency_s": app.target_latency_s, "running_s": 600.0, "warm_up_s": 300.0}
            if method == "AuTraScale":
                policy: Any = AuTraScale(**options(app), base=named(app, BASES[job]))
            else:
                policy = DRS(rates=method.removeprefix("DRS "), **common)
            k, iterations, _, runs = play(policy, app, STARTS[job][direction], seed=seed)
            rate, late = measure(app, k, seed + 1000)
            met = late <= app.target_latency_s and rate >= 0.98 * app.load.mean_per_s  # type: ignore[attr-defined]
            rows.append(
                {
                    "job": job,
                    "start": direction,
                    "method": method,
                    "seed": seed,
                    "k, paper": printed[0],
                    "k": k,
                    "slots, paper": sum(printed[0]),
                    "slots": sum(k),
                    "ms, paper": printed[1],
                    "ms": 1e3 * late,
                    "rate": rate,
                    "score": score(k, BASES[job], late, app.target_latency_s),
                    "iterations, paper": printed[2],
                    "iterations": iterations,
                    "runs": runs,
                    "QoS, paper": printed[3],
                    "QoS": met,
                }
            )
    return pd.DataFrame(rows)


def iterations_table(seeds: Sequence[int], *, again: bool = False, **knobs: Any) -> pd.DataFrame:
    """Return AuTraScale's latency test with other knobs or seeds: iterations after the bootstrap, runs, slots.

    `again` adds the latency of the last configuration in a run of its own, and whether it meets the target.
    """
    import pandas as pd

    rows = []
    for make in (crowded_word_count, yahoo):
        app = make()
        for direction, start in STARTS[app.name].items():
            for seed in seeds:
                policy = replace(AuTraScale(**options(app), base=named(app, BASES[app.name])), **knobs)
                k, iterations, _, runs = play(policy, app, start, seed=seed)
                row = {"job": app.name, "start": direction, "seed": seed, "iterations": iterations}
                row |= {"runs": runs, "slots": sum(k)}
                if again:
                    late = measure(app, k, seed + 1000)[1]
                    row |= {"ms": 1e3 * late, "QoS": late <= app.target_latency_s}
                rows.append(row)
    return pd.DataFrame(rows)


def savings(table: pd.DataFrame) -> dict[str, float]:
    """Return the share of slots that AuTraScale saves over DRS, in per cent, by the start.

    As in the paper's 66.6 % and 36.7 %: the mean over jobs of one minus its slots over the mean of both DRS's.

    >>> import pandas as pd
    >>> rows = [(j, s, m, sum(k)) for (j, s, m), (k, *_) in PRINTED.items()]
    >>> {s: round(x, 2) for s, x in savings(pd.DataFrame(rows, columns=["job", "start", "method", "slots"])).items()}
    {'up': 36.71, 'down': 66.65}
    """
    slots = table.groupby(["job", "start", "method"]).slots.mean()
    found = {}
    for start in ("up", "down"):
        each = []
        for job in table.job.unique():
            drs = (slots[job, start, "DRS observed"] + slots[job, start, "DRS true"]) / 2
            each.append(1 - slots[job, start, "AuTraScale"] / drs)
        found[start] = 100 * fmean(each)
    return found


PLANTS: Mapping[str, tuple[float, float, float]] = {  # factors of contention and coherency, delay of a hop, target
    "as above": (1.0, 1.0, 1.0), "no contention": (0.0, 1.0, 1.0), "half of it": (0.5, 1.0, 1.0),
    "twice as much": (2.0, 1.0, 1.0), "hops half as long": (1.0, 0.5, 1.0), "targets 20 % longer": (1.0, 1.0, 1.2),
    "targets half as long again": (1.0, 1.0, 1.5),
}  # fmt: skip


def plants_table(plants: Sequence[str] = tuple(PLANTS), *, seed: int = 1) -> pd.DataFrame:
    """Return the savings over DRS by plant: more or less contention, shorter hops, longer targets; one seed.

    AuTraScale finds the throughput base of each plant itself. A method that misses QoS still counts with its slots, as
    in the paper.
    """
    import pandas as pd

    rows = []
    for name in plants:
        contention, hop, target = PLANTS[name]
        found = []
        for make in (crowded_word_count, yahoo):
            app = make()
            services = {
                n: replace(s, contention=contention * s.contention, coherency=contention * s.coherency)
                for n, s in app.plant.services.items()
            }
            link = replace(app.plant.network, delay_s=hop * app.plant.network.delay_s)
            goal = target * app.target_latency_s
            app = replace(app, plant=replace(app.plant, services=services, network=link), target_latency_s=goal)
            common: dict[str, Any] = {"target_latency_s": goal, "running_s": 600.0, "warm_up_s": 300.0}
            for start, k0 in STARTS[app.name].items():
                for method in METHODS:
                    ours = method == "AuTraScale"
                    policy: Any = (
                        AuTraScale(**options(app)) if ours else DRS(rates=method.removeprefix("DRS "), **common)
                    )
                    k = play(policy, app, k0, seed=seed)[0]
                    late = measure(app, k, seed + 1000)[1]
                    row = {"job": app.name, "start": start, "method": method}
                    found.append({**row, "slots": sum(k), "QoS": late <= goal})
        table = pd.DataFrame(found)
        met = table.groupby("method").QoS.sum().to_dict()
        rows.append({"plant": name, **savings(table), **{f"{m} met": int(met[m]) for m in METHODS}})
    return pd.DataFrame(rows)


def overhead(operators: Sequence[int] = (2, 4, 6, 8, 10), *, samples: int = 30, repeats: int = 5) -> pd.DataFrame:
    """Return Table IV: CPU seconds to fit the model, to use it, and of a step of Algorithm 2; least of repeats."""
    import numpy as np
    import pandas as pd

    rows = []
    search = Search.paper()
    for n in operators:
        rng = np.random.default_rng([n, samples])
        lattice = Lattice(rng.integers(1, 9, n).tolist(), 40)
        drawn = [tuple(k) for k in lattice.draw(rng, samples).tolist()]
        late = [0.1 + 0.5 / min(k) + 0.01 * rng.standard_normal() for k in drawn]
        told = [Sample(k, score(k, lattice.base, t, 0.18), t) for k, t in zip(drawn, late, strict=True)]
        names = tuple(f"o{i}" for i in range(n))
        library = Library(names, (Model(1e3, lattice.base, lattice.max_parallelism, tuple(told)),))
        surrogate, at = search.surrogate(lattice, told), [lattice.max_parallelism]
        ways: dict[str, Callable[[], Any]] = {
            "Alg1_train": partial(search.surrogate, lattice, told),
            "Alg1_use": partial(surrogate, at),
            "Alg2": lambda lat=lattice, lib=library, old=told: recommend(
                blend(lib, 2e3, lat, search), old[:5], search, 6
            ),  # type: ignore[misc]
        }
        rows.append({"operators": n, **{name: min(_cpu_s(way) for _ in range(repeats)) for name, way in ways.items()}})
    return pd.DataFrame(rows)


def _cpu_s(way: Callable[[], Any], times: int = 20) -> float:
    began = time.process_time()
    for _ in range(times):
        way()
    return (time.process_time() - began) / times


TRANSFERS: Mapping[str, tuple[Any, float, float]] = {"query5": (query5, 20e3, 30e3), "query11": (query11, 80e3, 100e3)}


def transfer_table(seeds: Sequence[int] = (1,)) -> pd.DataFrame:
    """Return the results of a new rate for queries 5 and 11: DS2, AuTraScale from scratch and with old models."""
    import pandas as pd

    rows = []
    for job, (make, old, new) in TRANSFERS.items():
        for seed in seeds:
            before, after = make(old), make(new)
            start = (1,) * len(before.topology.order)
            policy = AuTraScale(**options(before))
            k, _, state, _ = play(policy, before, start, seed=seed)
            library: Library = policy.learned(state)
            ways = {
                "from scratch": AuTraScale(**options(after)),
                "transfer": AuTraScale(**options(after), library=library),
                "transfer, relative": AuTraScale(**options(after), library=library, align="relative"),
                "transfer, monotone": AuTraScale(**options(after), library=library, prior="monotone"),
            }
            for way, made in ways.items():
                rows.append({"job": job, "way": way, "seed": seed, **_run(made, after, k, seed)})
            ds2 = DS2(decision_interval_s=600.0)
            steps = list(control_loop(ds2, Rerun(after, k, seed), steps=360))
            last = steps[-1].deployment
            changed = tuple(last.parallelism[n] for n in after.topology.order)
            rate, late = measure(after, changed, seed + 1000)
            rows.append(
                {"job": job, "way": "DS2", "seed": seed, "k": changed, "slots": sum(changed), "ms": 1e3 * late,
                 "rate": rate, "QoS": late <= after.target_latency_s, "cores": cores(after, changed, seed + 1000),
                 "runs": 1 + sum(s.rescaled for s in steps), "algorithm_2_runs": 0}
            )  # fmt: skip
    return pd.DataFrame(rows)


def _run(policy: AuTraScale, app: App, start: Sequence[int], seed: int) -> dict[str, Any]:
    phases: list[str] = []
    k, iterations, _, runs = play(policy, app, start, seed=seed, phases=phases)
    rate, late = measure(app, k, seed + 1000)
    told = {
        "algorithm_2_runs": phases.count("transfer"),
        "phases": " ".join(phases),
        "cores": cores(app, k, seed + 1000),
        "k": k,
        "slots": sum(k),
        "ms": 1e3 * late,
        "rate": rate,
        "QoS": late <= app.target_latency_s,
    }
    return {**told, "iterations": iterations, "runs": runs}


def main() -> None:
    import pandas as pd

    with pd.option_context("display.width", 220, "display.max_columns", 30, "display.max_rows", 200):
        for title, table in (
            ("Throughput test, from one instance each", throughput_table()),
            ("Latency test: Tables II and III", latency_table((1, 2, 3))),
            ("Transfer test", transfer_table((1, 2, 3))),
        ):
            print(f"\n{title}\n\n{table.to_string(index=False, float_format=lambda x: f'{x:,.3g}', na_rep='')}")


if __name__ == "__main__":
    main()
