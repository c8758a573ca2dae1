"""ETP against brute force over all paths, networkx, and arithmetic; and what is refused."""

import math
from fractions import Fraction

import networkx as nx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import DspkitError, Topology, apps, etp, run
from dspkit.core import ArgumentError, DeploymentError, MetricError, NotFoundError, TopologyError
from dspkit.policies.static import Static

LIMITS = st.floats(1.0, 3.0)


@st.composite
def jobs(draw, most=8):
    """Edges of a random acyclic graph, {operator: (input, processing)} with congested, idle and unmeasured ones."""
    n = draw(st.integers(2, most))
    edges = []
    for child in range(1, n):
        edges += [(parent, child) for parent in draw(st.sets(st.integers(0, child - 1), min_size=1, max_size=3))]
    whole = st.integers(0, 400).map(float)
    measured = draw(st.dictionaries(st.integers(0, n - 1), st.tuples(whole, whole), min_size=1))
    return edges, measured


def _paths(children, start):
    """Every way from `start` to a sink."""
    if not children[start]:
        yield (start,)
    for child in children[start]:
        for rest in _paths(children, child):
            yield (start, *rest)


def _brute(edges, measured, limit):
    """The definition, path by path, in exact arithmetic: {operator: (set of sinks, ETP, sum over paths)}."""
    g = etp.as_graph(edges)
    done = {o: Fraction(measured[o][1]) if o in measured else Fraction(0) for o in g.order}
    stuck = {o for o, (i, p) in measured.items() if i > limit * p * (1 + 1e-12)}
    total = sum(done[s] for s in g.sinks)
    found = {}
    for o in g.order:
        free = [way[-1] for way in _paths(g.children, o) if not stuck & set(way[1:])]
        share = [sum((done[s] for s in x), Fraction(0)) / total if total else Fraction(0) for x in (set(free), free)]
        found[o] = (set(free), *share)
    return found


@given(jobs(), LIMITS)
def test_it_is_the_definition_path_by_path(job, limit):
    edges, measured = job
    brute = _brute(edges, measured, limit)
    shares, sums = etp.etp(edges, measured, limit), etp.etp(edges, measured, limit, tree_sum=True)
    for o, (sinks, share, by_path) in brute.items():
        assert shares[o] == pytest.approx(float(share), abs=1e-12)
        assert sums[o] == pytest.approx(float(by_path), abs=1e-12)
        assert set(etp.explain(edges, measured, o, limit).sinks) == sinks
        assert 0 <= shares[o] <= 1
        assert sums[o] >= shares[o] - 1e-12


@given(jobs(), LIMITS, LIMITS)
def test_a_higher_congestion_rate_never_lowers_it(job, one, other):
    low, high = (etp.etp(*job, limit) for limit in sorted((one, other)))
    assert all(low[o] <= high[o] for o in low)


@given(jobs(), LIMITS)
def test_reasons_are_true(job, limit):
    edges, measured = job
    g = etp.as_graph(edges)
    stuck = set(etp.congested(edges, measured, limit))
    ranked = etp.rank(edges, measured, limit)
    assert sorted(ranked.operator) == sorted(g.order)
    assert ranked.congested.tolist() == sorted(ranked.congested, reverse=True)
    for o in g.order:
        why = etp.explain(edges, measured, o, limit)
        assert why.congested == (o in stuck)
        for sink, way in zip(why.sinks, why.ways, strict=True):
            assert (way[0], way[-1]) == (o, sink)
            assert not stuck & set(way[1:])
        for sink, way, by in why.blocked:
            assert (way[0], way[-1]) == (o, sink)
            assert by in way[1:]
            assert by in stuck
            assert all(c in g.children[p] for p, c in zip(way, way[1:], strict=False))
        below = set(_paths(g.children, o))
        assert set(why.sinks) | {s for s, _, _ in why.blocked} == {way[-1] for way in below}


@given(jobs(most=7))
def test_the_best_choice_is_never_worth_nothing(job):
    """If every sink does something, a most-downstream congested operator has ETP > 0."""
    edges, measured = job
    g = etp.as_graph(edges)
    measured = {o: measured.get(o, (5.0, 5.0)) for o in g.order}
    measured |= {s: (measured[s][0], measured[s][1] + 1) for s in g.sinks}
    if stuck := etp.congested(edges, measured):
        shares = etp.etp(edges, measured)
        assert max(shares[o] for o in stuck) > 0


@pytest.mark.slow
def test_a_large_graph_agrees_with_networkx():
    """Ten thousand operators, fifty thousand edges: descendants in the graph without congested operators."""
    edges, measured = large(10_000, 50_000, seed=3)
    shares = etp.etp(edges, measured)
    g = nx.DiGraph(edges)
    stuck = {o for o, (i, p) in measured.items() if i > 1.2 * p}
    total = math.fsum(measured[s][1] for s in g if not g.out_degree(s))
    free = nx.DiGraph(g.subgraph(set(g) - stuck))
    for o in np.random.default_rng(0).choice(10_000, 100, replace=False).tolist():
        below = {o}.union(*({c} | nx.descendants(free, c) for c in g[o] if c not in stuck))
        want = math.fsum(measured[s][1] for s in below if not g.out_degree(s)) / total
        assert shares[o] == pytest.approx(want, rel=1e-9)
    assert etp.rank(edges, measured).operator.nunique() == 10_000


def large(n, m, seed):
    random = np.random.default_rng(seed)
    ends = random.integers(1, n, m)
    starts = (ends * random.random(m)).astype(int)
    edges = list(dict.fromkeys(zip(starts.tolist(), ends.tolist(), strict=True)))
    edges += [(0, o) for o in sorted(set(range(1, n)) - set(ends.tolist()))]
    done = random.uniform(50, 100, n)
    came = done * random.uniform(0.9, 1.25, n)
    return edges, {o: (i, p) for o, i, p in zip(range(n), came.tolist(), done.tolist(), strict=True)}


def test_pasted_tables_snapshots_and_mappings_say_the_same():
    app = apps.diamond()
    history = run(Static(), app.simulator(scale=3.0), steps=3)
    snapshot = history[-1].snapshot
    frame = history.operators[history.operators.t == snapshot.t]
    edges = history.edges[history.edges.t == snapshot.t]
    mapped = {
        n: {"input_rate": m.input_rate, "processing_rate": m.processing_rate} for n, m in snapshot.operators.items()
    }
    mapped |= {n: (0.0, snapshot.operators[n].processing_rate) for n in app.topology.sources}
    want = etp.etp(app.topology, snapshot)
    assert etp.etp(edges, etp.rates(frame, edges)) == want
    assert etp.etp(app.topology.edges, mapped) == want
    assert etp.etp({n: app.topology.downstream(n) for n in app.topology.order}, mapped) == want


def test_sources_count_only_if_asked():
    edges = [("a", "b")]
    frame = pd.DataFrame({"operator": ["a", "b"], "input_rate": [200, 90], "processing_rate": [100, 90]})
    flow = {("a", "b"): 90}
    assert etp.congested(edges, etp.rates(frame, flow)) == ()
    assert etp.congested(edges, etp.rates(frame, flow, sources=True)) == ("a",)


def test_nothing_comes_out():
    """0/0: all ETPs are 0, and the most upstream congested operator gets the slots."""
    edges = [("a", "b"), ("b", "c"), ("c", "d")]
    measured = {"a": (0, 10), "b": (10, 2), "c": (2, 0), "d": (0, 0)}
    assert set(etp.etp(edges, measured).values()) == {0.0}
    chosen = etp.scale_out(edges, measured, dict.fromkeys("abcd", 1), ["m"], 2)
    assert [slot.operator for slot in chosen] == ["b", "b"]
    assert etp.scale_out(edges, measured, dict.fromkeys("abcd", 1), ["m"], 2, per_instance=True) == []


def test_all_are_congested():
    edges = [("s", "a"), ("a", "b")]
    rates = etp.Rates({"s": 40, "a": 20, "b": 10}, {("s", "a"): 40, ("a", "b"): 20}, {"s": 80})
    assert etp.congested(edges, rates) == ("s", "a", "b")
    assert etp.etp(edges, rates) == {"s": 0, "a": 0, "b": 1}
    chosen = etp.scale_out(edges, rates, {"s": 1, "a": 1, "b": 1}, ["m"], 3)
    assert [slot.operator for slot in chosen] == ["b", "a", "b"]  # more of a floods b again


def test_limits_hold_and_slots_may_stay_empty():
    edges, measured = [("a", "b")], {"a": (0, 100), "b": (100, 10)}
    chosen = etp.scale_out(edges, measured, {"a": 2, "b": 2}, ["m"], 9, limits={"a": 4, "b": 4})
    assert [slot.operator for slot in chosen] == ["b", "b", "a", "a"]


def test_a_capped_projection_stops_at_what_comes_in():
    rates = etp.Rates({"a": 100, "b": 90}, {("a", "b"): 110})
    g = etp.as_graph([("a", "b")])
    assert etp.project(g, rates, "b", 1).processing["b"] == 180
    assert etp.project(g, rates, "b", 1, cap=True).processing["b"] == pytest.approx(110)
    assert etp.project(g, rates._replace(emit={("a", "b"): 50}), "b", 1, cap=True).processing["b"] == 90  # never less


def test_equal_etps_are_equal_whatever_their_last_digit():
    """b feeds 0.1 + 0.2 and c 0.3 of what comes out: a tie, which goes to b, though not in binary fractions."""
    edges = [("s", "b"), ("s", "c"), ("b", "x"), ("b", "y"), ("c", "z")]
    for b, c in (((0.1, 0.2), 0.3), ((0.1, 0.7), 0.8)):
        done = dict(zip("xyz", (*b, c), strict=True))
        measured = {**{o: (0, p) for o, p in done.items()}, "b": (2, 1), "c": (2, 1), "s": (0, 1)}
        assert etp.scale_out(edges, measured, dict.fromkeys("sbcxyz", 1), ["m"], 1)[0].operator == "b"


def test_the_prototype_ranks_by_instances():
    edges = [("s", "a"), ("s", "b")]
    measured = {"s": (0, 100), "a": (90, 60), "b": (60, 40)}
    k = {"s": 1, "a": 4, "b": 2}
    assert etp.scale_out(edges, measured, k, ["m"], 1)[0].operator == "a"
    assert etp.scale_out(edges, measured, k, ["m"], 1, per_instance=True)[0].operator == "b"  # 40/2 > 60/4


def test_more_machines_asked_to_leave_than_there_are():
    places = {("a", 0): "m1", ("b", 0): "m2"}
    for count in (2, 5, -1):
        with pytest.raises(DeploymentError, match="one machine must stay"):
            etp.scale_in([("a", "b")], places, {"a": 1, "b": 1}, count)
    assert etp.scale_in([("a", "b")], places, {"a": 1, "b": 1}, 0) == []
    idle = etp.scale_in([("a", "b")], places, {"a": 1, "b": 1}, 1, machines=["m0", "m1", "m2"])
    assert (idle[0].machine, idle[0].moves) == ("m0", {})


def test_machines_are_counted_as_people_do():
    places = {("a", i): f"node-{i}" for i in (10, 9, 2)}
    assert list(etp.scale_in({"a": ()}, places, {"a": 1.0}, 1)[0].sums) == ["node-2", "node-9", "node-10"]


@given(jobs(), st.data())
def test_scale_in_moves_only_who_must_and_loses_nobody(job, data):
    edges, measured = job
    order = etp.as_graph(edges).order
    places = {(o, i): data.draw(st.sampled_from("wxyz")) for o in order for i in range(data.draw(st.integers(1, 3)))}
    machines = sorted(set(places.values()))
    count = data.draw(st.integers(0, len(machines) - 1))
    shares = etp.etp(edges, measured)
    where = dict(places)
    for removal in etp.scale_in(edges, places, shares, count):
        sums = etp.machine_etp(where, shares)
        assert sums[removal.machine] == pytest.approx(min(sums.values()), abs=1e-9)
        assert set(removal.moves) == {i for i, m in where.items() if m == removal.machine}
        where |= removal.moves
        taken = [list(removal.moves.values()).count(m) for m in set(removal.moves.values())]
        assert not taken or max(taken) - min(taken) <= 1
    assert len(set(where.values())) <= len(machines) - count
    assert set(where) == set(places)


# What Stela was compared with

FAN = [("s", "a"), ("s", "b"), ("a", "t"), ("b", "t")]
LOADED = etp.Rates(
    {"s": 100, "a": 80, "b": 20, "t": 100}, {("s", "a"): 80, ("s", "b"): 20, ("a", "t"): 80, ("b", "t"): 20}
)


def _moved(order, count=3, k=2):
    places = {(o, i): "old" for o in "sabt" for i in range(k)}
    after = etp.migrate(FAN, LOADED, places, ["n1", "n2"], count, order)
    return sorted(i for i, m in after.items() if m != "old")


def test_link_load_is_what_goes_in_and_out():
    assert etp.link_load(FAN, LOADED) == {"s": 100, "a": 160, "b": 40, "t": 100}


def test_who_moves_by_link_load():
    assert _moved("least link load") == [("b", 0), ("b", 1), ("s", 0)]  # s is next to b, and comes before t
    assert _moved("most link load") == [("a", 0), ("a", 1), ("s", 0)]
    apart = [("s", "a"), ("a", "b"), ("b", "c")]
    rates = etp.Rates({}, {("s", "a"): 5, ("a", "b"): 100, ("b", "c"): 50})
    places = {(o, 0): "old" for o in "sabc"}
    after = etp.migrate(apart, rates, places, ["new"], 2)
    assert [i[0] for i, m in after.items() if m == "new"] == ["s", "a"]  # a is loaded more than c, but adjacent


def test_who_moves_by_structure_agrees_with_networkx():
    edges = [("s", "a"), ("a", "b"), ("b", "t"), ("s", "c"), ("c", "t"), ("t", "u"), ("t", "v"), ("a", "t")]
    g = nx.DiGraph(edges)
    far = nx.single_source_shortest_path_length(g, "s")
    assert etp.structural_score(edges, "nearest to source") == far
    back = nx.multi_source_dijkstra_path_length(g.reverse(), {"u", "v"})
    assert etp.structural_score(edges, "nearest to sink") == back
    assert etp.structural_score(edges, "descendants") == {o: -len(nx.descendants(g, o)) for o in g}
    assert etp.structural_score(edges, "centrality") == {o: -g.degree(o) for o in g}
    assert _moved("nearest to source")[0] == ("a", 0)
    assert {i[0] for i in _moved("nearest to sink", 2)} == {"t"}


@pytest.mark.parametrize("order", etp.ORDERS)
def test_every_order_moves_just_so_many(order):
    for count in (0, 1, 5, 8, 99):
        assert len(_moved(order, count)) == min(count, 8)


def test_leaving_machines_are_empty_afterwards():
    places = etp.rebalance(FAN, dict.fromkeys("sabt", 2), ["m1", "m2", "m3"])
    everyone = etp.place_without(FAN, places, ["m1"], ["m1", "m2", "m3"])
    assert everyone == etp.rebalance(FAN, dict.fromkeys("sabt", 2), ["m2", "m3"])
    only = etp.place_without(FAN, places, ["m1"], ["m1", "m2", "m3"], deal="moved")
    assert all(only[i] == m for i, m in places.items() if m != "m1")
    assert "m1" not in only.values()
    with pytest.raises(DeploymentError, match="one that stays"):
        etp.place_without(FAN, places, ["m1"], ["m1"])


# Convergence


@given(st.lists(st.integers(0, 200), min_size=1, max_size=40))
def test_convergence_by_the_definition(x):
    m = sum(x[len(x) // 2 :]) / len(x[len(x) // 2 :])
    least = math.inf
    for s in range(len(x)):
        for e in range(s, len(x)):
            part = x[s : e + 1]
            if sum(v > m for v in part) >= 2 and sum(v < m for v in part) >= 2:
                if np.std(part) <= 0.05 * m * (1 + 1e-12):
                    least = min(least, 10.0 * (e + 1))
                break
    assert etp.convergence_s(x) == least


# What is refused

K, HELD = dict.fromkeys("sabt", 1), {("s", 0): "m", ("a", 0): "n"}


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: etp.as_graph([]), TopologyError, "no operator"),
        (lambda: etp.as_graph([("a", "b"), ("b", "a")]), TopologyError, "cycle near"),
        (lambda: etp.as_graph("ab,c"), TopologyError, "pass edges"),
        (lambda: etp.as_graph(pd.DataFrame({"from": [1]})), TopologyError, "columns start and end"),
        (lambda: etp.etp(FAN, {"s": 3}), MetricError, "two numbers"),
        (lambda: etp.etp(FAN, {"s": (1, math.nan)}), MetricError, "not measured"),
        (lambda: etp.etp(FAN, {"s": (1, -1)}), MetricError, "processing rate -1"),
        (lambda: etp.etp(FAN, 7), MetricError, "a Snapshot, a data frame"),
        (lambda: etp.etp(FAN, LOADED, 0), ArgumentError, "a finite number above 0"),
        (lambda: etp.rates(pd.DataFrame({"operator": ["a"]})), MetricError, "input_rate"),
        (lambda: etp.rates(pd.DataFrame({"operator": ["a", "a"], "input_rate": 1, "processing_rate": 1})), MetricError,
         "choose a window"),
        (lambda: etp.rates({"a": (1, 1)}, pd.DataFrame({"start": [1]})), MetricError, "edges without"),
        (lambda: etp.explain(FAN, LOADED, "typo"), NotFoundError, "typo"),
        (lambda: etp.slots(3, 0), DeploymentError, "machines=0"),
        (lambda: etp.slots(3.5, 2), DeploymentError, "instances=3.5"),
        (lambda: etp.etp(FAN, LOADED, True), ArgumentError, "congestion_rate=True"),
        (lambda: etp.etp(FAN, {"typo": (1, 1)}), MetricError, "rates of 'typo'"),
        (lambda: etp.etp(FAN, etp.rates({"s": (1, 1)}, {("a", "s"): 1.0})), MetricError, r"rates of \('a', 's'\)"),
        (lambda: etp.etp(FAN, etp.Rates({"s": -5})), MetricError, "rate -5 of 's'"),
        (lambda: etp.rates({"a": (1, 1)}, [("a", "b")]), MetricError, "rate}"),
        (lambda: etp.link_load(FAN, etp.Rates({}, {("z", "b"): 3})), MetricError, "rates of"),
        (lambda: etp.scale_out(FAN, LOADED, {"s": 1}, ["m"], 1), DeploymentError, "no number of instances of 'a'"),
        (lambda: etp.scale_out(FAN, LOADED, K | {"a": 0}, ["m"], 1), DeploymentError, "instances of 'a'=0"),
        (lambda: etp.scale_out(FAN, LOADED, K, ["m"], 1.5), DeploymentError, "slots=1.5"),
        (lambda: etp.scale_out(FAN, LOADED, K, ["m"], 1, limits={"z": 1}), NotFoundError, "a limit of 'z'"),
        (lambda: etp.project(etp.as_graph(FAN), LOADED, "s", 0), DeploymentError, "instances=0"),
        (lambda: etp.scale_in(FAN, {("z", 0): "m", ("a", 0): "n"}, {}, 1), DeploymentError, "instances of 'z'"),
        (lambda: etp.scale_in(FAN, HELD, {"s": 1.0}, 1), MetricError, "ETP None of 'a'"),
        (lambda: etp.scale_in(FAN, HELD, {"s": 1.0, "a": math.nan}, 1), MetricError, "ETP nan of 'a'"),
        (lambda: etp.scale_in(FAN, HELD, {"s": 1.0, "a": 1.0}, 0.5), DeploymentError, "one machine must stay"),
        (lambda: etp.rebalance(FAN, K, []), DeploymentError, "on no machine"),
        (lambda: etp.rebalance(FAN, {"s": 1}, ["m"]), DeploymentError, "no number of instances"),
        (lambda: etp.migrate(FAN, LOADED, HELD, [], 1), DeploymentError, "on no machine"),
        (lambda: etp.place_without(FAN, HELD, ["z"], ["m", "n"]), NotFoundError, "machines"),
        (lambda: etp.place_without(FAN, HELD, ["m"], ["m", "n"], deal="some"), ArgumentError, "deal='some'"),
        (lambda: etp.structural_score(FAN, "by name"), ArgumentError, "order='by name'"),
        (lambda: etp.as_graph([(["a"], "b")]), TopologyError, "hashable names"),
        (lambda: etp.convergence_s(["x"]), DspkitError, "one finite number"),
        (lambda: etp.convergence_s([1, 2], window_s=0), DspkitError, "window_s=0"),
        (lambda: etp.downtime_s([math.nan]), DspkitError, "one finite number"),
        (lambda: etp.scale_out(FAN, LOADED, {}, [], 1), DeploymentError, "no machine"),
        (lambda: etp.migrate(FAN, LOADED, {}, ["m"], 1, "by name"), ArgumentError, "order='by name'"),
        (lambda: etp.convergence_s([]), DspkitError, "no window"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(call, error, said):
    with pytest.raises(error, match=said):
        call()


# Back-pressure hides congestion; `unblocked` brings it back


def test_rates_without_back_pressure():
    app = apps.linear()
    backend = app.simulator(parallelism={"source": 2, "parse": 2, "enrich": 1, "sink": 1}, scale=1.0)
    for _ in range(40):
        snapshot = backend.observe()
    assert etp.held_back(snapshot)
    assert etp.congested(app.topology, snapshot) == ()
    free = etp.unblocked(app.topology, snapshot)
    assert etp.congested(app.topology, free) == ("enrich",)
    assert etp.inputs(free)["enrich"] == pytest.approx(3000, rel=0.02)
    assert free.processing["enrich"] == pytest.approx(500, rel=0.05)  # 2 ms a record


def test_operators_of_a_micro_batch_share_the_time():
    from dataclasses import replace

    from dspkit import Plant, Simulator, workload
    from dspkit.simulator import Service

    chain = Topology.chain("a", "b")
    plant = Plant({"a": Service(1e-3), "b": Service(3e-4)}, execution="micro-batch")
    backend = Simulator(chain, plant, workload.Constant(1200))
    for _ in range(6):
        snapshot = backend.observe()
    assert etp.congested(chain, etp.unblocked(chain, snapshot)) == ("a",)
    assert etp.held_back(replace(snapshot, execution="micro-batch"))
