"""Printed numbers that follow from other printed numbers by a formula of the paper: no plant, no choice of ours."""

from __future__ import annotations

from dataclasses import replace
from math import comb
from typing import Any

import pandas as pd

from dspkit import etp, placement
from dspkit.apps import App, tag_and_count
from dspkit.bo import score, stop_threshold
from dspkit.placement import Application, Downtime, Network, Problem, Replication
from dspkit.placement.generators import diamond_application, replicated_application, sequential_application
from dspkit.placement.metrics import single_objective
from dspkit.placement.replication.options import Options, options
from dspkit.placement.replication.program import replica_program
from dspkit.placement.replication.solve import one_step
from dspkit.profiling import learn_threshold

from ..autrascale.study import BASES, PRINTED, savings

TARGETS = {"crowded_word_count": 0.180, "yahoo": 0.300}
REWARDS = {0.60: 0.53, 0.65: 0.57, 0.70: 0.62, 0.75: 0.66, 0.80: 0.71, 0.85: 0.65, 0.90: 0.43}  # ELYSIUM's Table 1
FIGURE_2 = etp.Rates(  # Stela's, rebuilt such that its printed numbers hold
    {1: 5000, 2: 5000, 3: 2000, 4: 2000, 5: 2000, 6: 500, 7: 1000, 8: 1000, 9: 250, 10: 250},
    {(1, 2): 5000, (1, 3): 5000, (2, 4): 5000, (3, 5): 2000, (3, 6): 2000, (5, 7): 1000, (5, 8): 1000, (6, 9): 250,
     (6, 10): 250},
    {1: 6000},
)  # fmt: skip
SIZES = tuple((n, k) for k in (2, 3, 4) for n in (8, 12, 16, 20, 24) if n**k < 10**5)  # of Table 8.4


def values() -> list[dict[str, Any]]:
    """Return each value by its name."""
    made: dict[str, Any] = {}
    for (job, start, method), (k, ms, _, _) in PRINTED.items():
        if method == "AuTraScale":
            made[f"score, {job} {start}"] = score(k, BASES[job], ms / 1000, TARGETS[job])
    made["threshold of the score"] = stop_threshold(0.8, 1.0)
    printed = [(j, s, m, sum(k)) for (j, s, m), (k, *_) in PRINTED.items()]
    for start, saved in savings(pd.DataFrame(printed, columns=["job", "start", "method", "slots"])).items():
        made[f"slots saved, {start}"] = saved
    shares = etp.etp(list(EDGES), FIGURE_2, 1.0)
    made |= {f"ETP of operator {o}": 100 * shares[o] for o in (3, 4, 6, 1)}
    ranked = etp.rank(list(EDGES), FIGURE_2, 1.0)
    made["order of scale-out"] = ranked.operator[ranked.congested].tolist()
    made["chance of the best machines"] = comb(6, 2) / comb(8, 4)
    made["threshold of most reward"] = learn_threshold(lambda thr, _: thr - REWARDS[thr], tuple(REWARDS), rounds=3).best
    made |= _placement()
    made |= _variables()
    return [{"name": name, "value": value} for name, value in made.items()]


EDGES = ((1, 2), (1, 3), (2, 4), (3, 5), (3, 6), (5, 7), (5, 8), (6, 9), (6, 10))


def _placement() -> dict[str, Any]:
    net = Network(tuple("abc"), 0.01, 8, 1, (0.99, 1, 1))
    found = placement.metrics(Problem(sequential_application(12), net), [0] * 8 + [1] * 4)
    seven = Network(tuple("ab"), 0.01, 8, 1, (0.99999, 0.85))
    fine = placement.metrics(Problem(sequential_application(7), seven), [0] * 7)
    chain, diamond = (len(shape(50).streams) * 20**2 for shape in (sequential_application, diamond_application))
    big = [len(shape(20).streams) * 100**2 for shape in (sequential_application, diamond_application)]
    app = replicated_application(6)
    return {
        "availability, 8 of 12 executors at 99 %": 100 * found.availability,
        "availability, 7 executors at 99.999 %": 100 * fine.availability,
        "x, 50 operators on 20 nodes": 50 * 20,
        "y, 50 operators on 20 nodes, sequential": chain,
        "y, 50 operators on 20 nodes, fat": diamond,
        "x, 20 operators on 100 nodes": 20 * 100,
        "y, 20 operators on 100 nodes, sequential": big[0],
        "y, 20 operators on 100 nodes, fat": big[1],
        "y of Sc2 over Sc1, sequential": 19 * 50**2 / chain,
        "operators of the replicated application": len(app.operators),
        "links of tag and count": _links(tag_and_count()),
        "links of tag and count, replicated": _links(tag_and_count(2)),
    }


def _links(app: App) -> int:
    """Return the number of pairs of executors that exchange tuples."""
    k = app.deployment().parallelism
    return sum(k[a] * k[b] for a, b in app.topology.edges)


def _taxi(nodes: int, most: int) -> Problem:
    """Return the taxi query's graph with all operators free; three of them are never replicated."""
    names = ("source", "parser", "filter", "route", "metronome", "count", "partial", "global")
    streams = (
        ("source", "parser"), ("parser", "filter"), ("filter", "route"), ("route", "count"), ("filter", "metronome"),
        ("metronome", "count"), ("count", "partial"), ("partial", "global"),
    )  # fmt: skip
    degrees = [1 if n in ("source", "metronome", "global") else most for n in names]
    network = Network(tuple(f"n{u}" for u in range(nodes)), 0.03, most + 1.0)
    return Problem(Application(names, streams, 1, 0.005, 100), network, replication=Replication(degrees))


def _variables() -> dict[str, Any]:
    """Return the columns of the thesis's own programs: ODRP, EDRP and rEDRP."""
    free = replace(_taxi(6, 3), replication=Replication(3))
    columns = len(replica_program(options(free), single_objective("response_s"), thesis=True).cost)
    made: dict[str, Any] = {"ODRP's variables, thousands": columns / 1000}
    for nodes, most in SIZES:
        problem = replace(_taxi(nodes, most), downtime=Downtime())
        running = problem.running({o: "n0" if k < 4 else "n1" for k, o in enumerate(problem.application.operators)})
        for title, some in (("EDRP", options(problem)), ("rEDRP", options(problem, one_step(running)))):
            made[f"{title}'s variables, {nodes} nodes, k = {most}, thousands"] = elastic_columns(some) / 1000
    return made


def elastic_columns(found: Options) -> int:
    """Return the columns of EDRP's program, without building it: x, y, z of nodes and pairs, R and T_D.

    A test compares it with the program where that fits into memory.
    """
    problem = found.problem
    alternatives = {o: len(rows) for o, rows in zip(problem.application.operators, found.counts, strict=True)}
    pairs = sum(alternatives[a] * alternatives[b] for a, b in problem.application.streams)
    nodes = len(problem.network.nodes)
    return pairs + sum(alternatives.values()) + nodes**2 + nodes + 2
