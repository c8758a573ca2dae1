"""The rate that would arrive at each operator if nothing upstream were back-pressured."""

import dataclasses

import pytest
from hypothesis import given, settings

from dspkit import Deployment, History, OperatorMetrics, Plant, Snapshot, Topology, run, workload
from dspkit.core import BackendBase, MetricError
from dspkit.policies.static import Static
from dspkit.simulator import Service, Simulator
from dspkit.testing.strategies import histories


def _metrics(done, parallelism=1):
    return OperatorMetrics(done, done, done, true_rate=None, utilisation=0.5, backlog=0, parallelism=parallelism)


def _snapshot(done, edges, offered, t=10.0):
    operators = {name: _metrics(rate) for name, rate in done.items()}
    k = dict.fromkeys({name for edge in edges for name in edge} | set(offered), 1)
    return Snapshot(t, 10.0, Deployment(k), operators, offered, 0.0, None, None, 0.0, edges)


def test_demand_is_the_offered_load_sent_down_the_graph():
    """A diamond: read sends 2 per record to a and 0.5 to b; both send on what they take, a twice."""
    s = _snapshot(
        {"read": 10, "a": 8, "b": 3},
        {("read", "a"): 20, ("read", "b"): 5, ("a", "join"): 16, ("b", "join"): 3},
        {"read": 100},
    )
    assert s.demand == {"read": 100, "a": 200, "b": 50, "join": 200 * 2 + 50}


def test_two_sources_add_up_and_a_filter_of_everything_leaves_nothing():
    s = _snapshot(
        {"x": 1, "y": 1, "join": 5}, {("x", "join"): 3, ("y", "join"): 1, ("join", "out"): 0}, {"x": 10, "y": 20}
    )
    assert s.demand == {"x": 10, "y": 20, "join": 50, "out": 0}


def test_an_unknown_selectivity_leaves_the_demand_out_instead_of_guessing():
    s = _snapshot({"read": 10, "b": 1}, {("read", "a"): 20, ("a", "join"): 7, ("read", "b"): 10, ("b", "join"): 1},
                  {"read": 100})  # fmt: skip
    assert s.demand == {"read": 100, "a": 200, "b": 100}  # a was not measured, so join's is unknown, not 100
    assert _snapshot({}, {}, {}).demand == {}


def test_nothing_offered_demands_nothing_whatever_the_selectivity():
    assert _snapshot({}, {("read", "a"): 0}, {"read": 0}).demand == {"read": 0, "a": 0}


def test_a_selectivity_that_the_window_lacks_is_the_last_one_measured():
    edges = (("read", "a"), ("a", "out"))
    first = _snapshot({"read": 10, "a": 10}, {edges[0]: 20, edges[1]: 5}, {"read": 10})
    stuck = _snapshot({"read": 10, "a": 0}, {edges[0]: 30, edges[1]: 0}, {"read": 100}, 20.0)
    assert "out" not in stuck.demand
    second = stuck.following(first, edges)
    assert second.demand == {"read": 100, "a": 300, "out": 150}  # read's newest selectivity, a's last one
    third = _snapshot({}, {}, {"read": 7}, 30.0).following(second, edges)
    assert third.demand == {"read": 7, "a": 21, "out": 10.5}
    assert first.following(third, edges) is first


def test_an_edge_that_was_never_measured_is_known_to_be_there():
    edges = (("read", "a"), ("read", "b"), ("a", "out"), ("b", "out"))
    lossy = _snapshot({"read": 1, "a": 1}, {edges[0]: 1, edges[1]: 1, edges[2]: 1}, {"read": 5}).following(None, edges)
    assert lossy.last_selectivities == {("b", "out"): None}
    assert lossy.demand == {"read": 5, "a": 5, "b": 5}


def test_a_cycle_is_refused():
    with pytest.raises(MetricError, match="cycle"):
        _ = _snapshot({"a": 1, "b": 1}, {("a", "b"): 1, ("b", "a"): 1}, {"a": 1}).demand


class _Scripted(BackendBase):
    """Snapshots in a row."""

    topology, knobs = Topology.chain("read", "a", "out"), frozenset()

    def __init__(self, *snapshots):
        self._left = list(snapshots)
        self.deployment = snapshots[0].deployment

    def observe(self):
        return self._left.pop(0) if self._left else None

    def deploy(self, deployment):
        raise AssertionError


def test_the_loop_remembers_selectivities_on_any_backend_and_over_a_pause(tmp_path):
    edges = (("read", "a"), ("a", "out"))
    windows = [
        _snapshot({"read": 10, "a": 10, "out": 5}, {edges[0]: 20, edges[1]: 5}, {"read": 10}),
        _snapshot({"read": 0, "a": 0, "out": 0}, dict.fromkeys(edges, 0), {"read": 10}, 20.0),
        _snapshot({"read": 0, "a": 0, "out": 0}, dict.fromkeys(edges, 0), {"read": 20}, 30.0),
    ]
    history = run(Static(), _Scripted(*windows))
    assert [s.snapshot.demand["out"] for s in history] == [10, 10, 20]
    assert History.load(history.save(tmp_path / "run.parquet")) == history
    assert history.operators[history.operators.operator == "out"].demand.tolist() == [10, 10, 20]


@pytest.mark.parametrize("engine", ["fluid", pytest.param("records", marks=pytest.mark.slow)])
def test_back_pressure_does_not_hide_the_load_of_a_simulated_job(engine):
    """An operator of 100 records/s blocks the one before it; the demand is the load times the selectivities."""
    services = {
        "read": Service(1e-4, selectivity={"split": 1}),
        "split": Service(1e-3, selectivity={"count": 2}, queue_records=20),
        "count": Service(1e-2, queue_records=20),
    }
    sim = Simulator(
        Topology.chain("read", "split", "count"), Plant(services), workload.Constant(200.0), engine=engine, seed=1
    )
    sim.observe()
    s = sim.observe()
    assert s.operators["count"].input_rate < 150  # what arrives: the load is hidden
    assert s.demand["split"] == pytest.approx(s.source_rate, rel=0.01)
    assert s.demand["count"] == pytest.approx(2 * s.source_rate, rel=0.03)  # records in flight at a window's ends


@given(history=histories())
@settings(max_examples=30)
def test_demand_of_anything_is_computed_and_never_negative(history):
    for step in history:
        demand = step.snapshot.demand
        assert set(demand) <= set(history.topology.order)
        assert all(rate >= 0 for rate in demand.values())
        assert {n: demand[n] for n in history.topology.sources} == step.snapshot.source_rates


def test_commits_are_no_downtime_and_both_fit_the_window():
    s = dataclasses.replace(_snapshot({}, {}, {}), commit_s=4.0, downtime_s=6.0)
    assert (s.downtime_s, s.commit_s) == (6.0, 4.0)
    with pytest.raises(MetricError, match="commit_s"):
        dataclasses.replace(s, commit_s=4.1)
    with pytest.raises(MetricError, match="commit_s"):
        dataclasses.replace(s, commit_s=-1)
