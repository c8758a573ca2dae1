"""A second reading of the ledger: ten of its rows, drawn at random, recomputed from the documented API alone.

`python -m benchmarks second_reader` does it; `python -m benchmarks.second_reader` prints the rows. Nothing here comes
from `reproduction`, except the drawn rows and their printed and committed numbers: every study is written again, from
the papers and from the prose of docs/reproduction.md. Rows of seconds and speed-ups are not drawn, as they depend on
the machine.
The lot is a hash of the seed and the row's name, so that a new row of the ledger rarely changes it.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from benchmarks import Claim
from dspkit import Deployment, Operator, Snapshot, Topology, apps, placement, profiling, run
from dspkit.apps import App
from dspkit.core import BackendBase
from dspkit.placement import HEURISTICS, Application, Network, Problem, Ranges, Replication, Weights, find_ranges, solve
from dspkit.policies import DRS, Elysium, Rebalance, ScaleOut, Static, Stela
from dspkit.simulator import Node, Plant, Service
from dspkit.workload import Constant, Sine, Workload

SEED, ROWS, NEAR = 23, 10, 0.01  # of the lot; its size; relative difference up to which a number is found again
Name = tuple[str, str, str]  # paper, place, what


def lot(seed: int = SEED, count: int = ROWS) -> list[Any]:
    """Return the rows of the ledger that are drawn: those with the least hashes."""
    from reproduction import ledger

    may = [
        row
        for row in ledger.everything()
        if row.ours is not None and row.kind != "input" and row.unit.strip() != "s"
        and "speed-up" not in row.what and "seconds" not in row.what
    ]  # fmt: skip

    def by(row: Any) -> str:
        return hashlib.sha256(f"{seed}:{row.paper}:{row.place}:{row.what}".encode()).hexdigest()

    return sorted(may, key=by)[:count]


def stela_gain(shape: App, tasks: int, executors: int, machines: int, busy: Mapping[str, tuple[float, float]],
               shares: Mapping[str, Mapping[str, float]] = {}) -> float:  # fmt: skip
    """Return Stela's throughput over that of Storm's default, in per cent, after a machine joined Table I's setting.

    `busy`: utilisation of an operator's instances if all of the load reached it, and the cores of a busy instance.
    """
    load_per_s = 1000.0
    order, into = shape.topology.order, {shape.topology.sources[0]: load_per_s}
    services = {}
    for name in order:
        use, cores = busy[name]
        services[name] = Service(use * executors / into[name], selectivity=shares.get(name, 1.0),
                                 queue_records=math.inf, io_share=1 - cores)  # fmt: skip
        for child in shape.topology.downstream(name):
            into[child] = into.get(child, 0.0) + into[name] * shares.get(name, {}).get(child, 1.0)
    plant = Plant(services, {f"node-{i}": Node(cores=1) for i in range(1, machines + 2)}, pause_s=20.0,
                  pause_kind="instances", noise=0.02)  # fmt: skip
    topology = Topology(tuple(Operator(n, tasks) for n in order), shape.topology.edges)
    app = App("trial", topology, plant, Constant(load_per_s), 1.0, "stela", machines, executors)
    request = (ScaleOut(1, at_s=300.0),)

    def after(policy: Any) -> float:
        means = []
        for seed in (1, 2, 3):
            late = list(run(policy, app, steps=90, seed=seed))[60:]
            means.append(fmean(sum(s.snapshot.operators[n].processing_rate for n in topology.sinks) for s in late))
        return fmean(means)

    return 100 * (after(Stela(requests=request)) / after(Rebalance(requests=request)) - 1)


LIGHT, CHAIN = (0.4, 0.2), (0.8, 0.4)


def page_load() -> float:
    """Return Figure 6's gain on Page Load: 7 to 8 machines of one core, 4 executors and 8 tasks per operator."""
    busy = {"events": CHAIN, "parse": LIGHT, "filter": CHAIN, "join": LIGHT, "aggregate": (2.2, 0.31), "store": LIGHT,
            "rank": (0.8, 0.6)}  # fmt: skip
    return stela_gain(apps.page_load(), 8, 4, 7, busy, {"aggregate": {"store": 0.6, "rank": 0.4}})


def linear() -> float:
    """Return Figure 4's gain on the chain: 6 to 7 machines of one core, 6 executors and 12 tasks per operator."""
    busy = {"source": (0.5, 0.2), "parse": LIGHT, "enrich": (2.0, 0.37), "sink": LIGHT}
    return stela_gain(apps.linear(), 12, 6, 6, busy)


@cache
def networks(shape: str) -> tuple[list[Problem], Ranges]:
    """Return Table 5.2's problems, five sizes and three networks of each, and the thesis's ranges.

    Of each metric they are the least and the greatest over all networks.
    """
    problems = [placement.scenario(shape, n, seed=seed) for n in (36, 49, 64, 81, 100) for seed in (1, 2, 3)]
    each = [find_ranges(problem, time_limit_s=60) for problem in problems]
    return problems, Ranges(*((min(low for low, _ in r), max(high for _, high in r)) for r in zip(*each, strict=True)))


def degraded(method: str, shape: str) -> float:
    """Return Table 5.2's mean degradation in per cent under w_z."""
    (problems, wide), weights, found = networks(shape), Weights(0, 0, 1), []
    for problem in problems:
        best = solve(problem, weights, wide, time_limit_s=60).loss
        # utility is 1 minus the loss: the share of the best one that is lost
        found.append(100 * (HEURISTICS[method](problem, weights, wide).loss - best) / (1 - best))
    return fmean(found)


def saved_up() -> float:
    """Return the share of slots that AuTraScale saves over the mean of both DRS, by Tables II and III."""
    word_count = 1 - sum((7, 8, 12, 38)) / ((sum((23, 33, 40, 16)) + sum((2, 1, 8, 8))) / 2)
    yahoo = 1 - sum((4, 2, 1, 1, 40)) / ((sum((40, 33, 33, 33, 33)) + sum((40, 33, 33, 33, 40))) / 2)
    return 100 * (word_count + yahoo) / 2


class Again(Workload):
    """A load to which the source adds the records that it sends once more."""

    def __init__(self, load: Workload):
        self.load, self.more_per_s = load, 0.0

    def rates(self, t: Any) -> Any:
        return self.load.rates(t) + self.more_per_s


class Acked(BackendBase):
    """A job whose source sends a record once more if it is not acknowledged, and whose restarts lose what is inside.

    Records are numbered as they leave the log; the job is first in, first out. Every 30 s the records that were sent
    more than 30 s ago fail, in the next window they are sent again, and their first copies are processed in vain.
    """

    def __init__(self, job: Any, load: Again):
        self.job, self.load, self.topology, self.knobs = job, load, job.topology, job.knobs
        self.left, self.done, self.failed = [0.0], 0.0, 0.0  # records that left, by window; that ended; that failed
        self.lost: list[tuple[float, float]] = []
        self.late: list[tuple[float, float]] = []

    @property
    def deployment(self) -> Deployment:
        return self.job.deployment

    def deploy(self, deployment: Deployment) -> None:
        if deployment != self.job.deployment:
            self.lost.append((self.done, self.left[-1]))
            self.done = self.left[-1]
        self.job.deploy(deployment)

    def observe(self) -> Snapshot:
        again, before = self.load.more_per_s, self.done
        seen = self.job.observe()
        self.left.append(self.left[-1] + seen.operators[self.topology.sources[0]].processing_rate * seen.window_s)
        self.done += seen.throughput * seen.window_s
        turns = int(seen.t / 30 + 1e-9) - 1
        limit = self.left[round(30 * turns / seen.window_s)] if turns > 0 else 0.0
        failing = _common(self.lost, self.failed, limit)
        if limit > (known := max(self.done, self.failed)):
            self.late.append((known, limit))
            failing += limit - known
        self.failed, self.load.more_per_s = max(self.failed, limit), failing / seen.window_s
        vain = _common(self.late, before, self.done) / seen.window_s
        first = max(0.0, seen.source_rate - again) / max(seen.source_rate, 1e-9)
        sources = {name: rate * first for name, rate in seen.source_rates.items()}
        return replace(seen, throughput=max(0.0, seen.throughput - vain), source_rates=sources)

    def close(self) -> None:
        super().close()
        self.job.close()


def _common(ranges: Sequence[tuple[float, float]], low: float, high: float) -> float:
    return sum(max(0.0, min(b, high) - max(a, low)) for a, b in ranges)


def sine() -> float:
    """Return Figure 9's degradation of T1 on the sine under ELYSIUM, mean of three seeds; restarts take 6.5 s."""
    app, found = apps.rolling_top_words(), []
    swept = Sine((100 + 480) / 2, (480 - 100) / 2, 1200.0)  # levels that need one and four nodes
    known = profiling.learn(run(Static(), app.simulator(swept, parallelism=4, seed=99), steps=180))
    load = Sine((5 + 480) / 2, (480 - 5) / 2, 500.0, phase_s=125.0)
    begin = profiling.compute_config(profiling.Estimator(app.topology, known), load.rate(0.0))
    app = replace(app, plant=replace(app.plant, pause_s=6.5, pause_kind="restart"), workers=begin.workers)
    for seed in (0, 1, 2):
        again = Again(load)
        job = app.simulator(again, parallelism=begin.parallelism, seed=seed, window_s=10.0)
        history = run(Elysium(learned=known, load="emitted", signal="cpu"), Acked(job, again), steps=150, seed=seed)
        each = [(s.snapshot.source_rate, s.snapshot.throughput) for s in history]
        found.append(fmean(abs(came - done) / came for came, done in each if came > 0))
    return fmean(found)


def drs_observed() -> str:
    """Return word count's parallelism by DRS with observed rates, from 36, 32, 24, 20; each run begins afresh."""
    app, seed = apps.crowded_word_count(), 1000
    policy = DRS(rates="observed", target_latency_s=app.target_latency_s, running_s=600.0, warm_up_s=300.0)
    k, now, changes = dict(zip(app.topology.order, (36, 32, 24, 20), strict=True)), 0.0, 0
    state = policy.init(app.topology, 1)
    while changes < 12:
        job, begun = app.simulator(parallelism=k, seed=seed, tick_s=1.0, window_s=10.0), now
        while True:
            seen = job.observe()
            now = begun + seen.t
            state, decision = policy.step(state, replace(seen, t=now))
            wished = dict(decision.deployment.parallelism)
            if wished != k:
                break
            if "recommended" in decision.why or decision.why.get("rule") == "latency is met":
                return ", ".join(map(str, k.values()))
        k, seed, changes = wished, seed + 1, changes + 1
    return ", ".join(map(str, k.values()))


def variables() -> float:
    """Return the thousands of variables of EDRP's program on 8 nodes with k = 3, counted from (8.12)-(8.23).

    Operators have as many alternatives as multisets of up to k nodes; three of the eight have one replica. x per
    alternative, y per pair of alternatives along a stream, z per node and pair of nodes, R and T_D.
    """
    many, one = math.comb(8 + 3, 3) - 1, 8
    x = {"source": one, "parser": many, "filter": many, "route": many, "metronome": one, "count": many, "partial": many,
         "global": one}  # fmt: skip
    streams = (("source", "parser"), ("parser", "filter"), ("filter", "route"), ("route", "count"),
               ("filter", "metronome"), ("metronome", "count"), ("count", "partial"),
               ("partial", "global"))  # fmt: skip
    return (sum(x.values()) + sum(x[a] * x[b] for a, b in streams) + 8 * 8 + 8 + 2) / 1000


def partial_ranks() -> int:
    """Return the instances of partialRank at 80 tuples/s, of Table 6.3's query on six nodes with drawn delays."""
    sent = np.random.default_rng(0).uniform(0.012, 0.032, 6)  # what a node sends is delayed
    delay = np.repeat(sent[:, None], 6, axis=1)
    np.fill_diagonal(delay, 0.0)
    rates = {"source": 284.0, "parser": 233.0, "filter": 253.0, "route": 253.0, "metronome": 190.0, "count": 335.0,
             "partial": 2371.0, "global": 185.0}  # fmt: skip
    per_record = {("source", "parser"): 1.0, ("parser", "filter"): 1.0, ("filter", "route"): 1.0,
                  ("filter", "metronome"): 1.0, ("route", "count"): 1.0, ("metronome", "count"): 0.003,
                  ("count", "partial"): 31.25, ("partial", "global"): 0.03 * 31.25}  # fmt: skip
    app = Application(tuple(rates), tuple(per_record), 1, 0.0, [80.0 * n for n in per_record.values()])
    most = [1 if n in ("source", "metronome", "global") else 3 for n in rates]
    replication = Replication(most, list(rates.values()), source_rate_per_s={"source": 80.0})
    nodes = tuple("abcdef")
    found = solve(Problem(app, Network(nodes, delay, 8.0), {"source": "a", "global": "a"}, replication), "response_s")
    assert found.replicas is not None
    return int(found.replicas["partial"])


THESIS, STELA = "Nardelli's thesis", "Stela"
READ: Mapping[Name, Callable[[], Any]] = {
    (STELA, "figure 6", "Page Load: Stela over the default after scale-out"): page_load,
    (THESIS, "table 5.2", "ODP-PS, diamond, w_z: degradation"): lambda: degraded("pruned", "diamond"),
    ("AuTraScale", "tables II, III", "the savings that their own slots give, scale-up"): saved_up,
    ("ELYSIUM", "figure 9", "T1 sine, reactive: degradation"): sine,
    (STELA, "conclusion", "scale-out: least gain over the default"): linear,
    (THESIS, "table 8.4", "EDRP, 8 nodes, k = 3: variables"): variables,
    ("AuTraScale", "table II", "word count down, DRS observed: parallelism"): drs_observed,
    (THESIS, "table 5.2", "tabu search, replicated, w_z: degradation"): lambda: degraded("tabu_search", "replicated"),
    (THESIS, "table 6.4", "80 tuples/s: partial_rank"): partial_ranks,
    (THESIS, "table 5.2", "hierarchical ODP, diamond, w_z: degradation"): lambda: degraded("hierarchical", "diamond"),
}


def read(some: Sequence[Any] | None = None) -> Iterator[tuple[Any, Any, bool]]:
    """Yield drawn rows with the number of the second reading, and whether it is the ledger's."""
    for row in lot() if some is None else some:
        function = READ.get((row.paper, row.place, row.what))
        mine = None if function is None else function()
        if isinstance(mine, str) or isinstance(row.ours, str) or mine is None:
            yield row, mine, mine == row.ours
        else:
            yield row, mine, abs(mine - row.ours) <= NEAR * abs(row.ours)


def rows_found_again() -> Claim:
    """Rows of ten drawn at random whose number of ours a script that imports only the documented API finds, too."""
    found = {row.what: float(same) for row, _, same in read()}
    return Claim(sum(found.values()), "rows", target=ROWS, detail=found)


def main() -> None:
    for row, mine, same in read():
        told = f"{row.paper}, {row.place}, {row.what}: printed {row.printed}, ledger {row.ours}, read again {mine}"
        sys.stdout.write(f"{told}{'' if same else '  DIFFERENT'}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
