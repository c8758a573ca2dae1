"""Several applications on one simulated cluster: as if alone where there is room, at each other's cost where not."""

from dataclasses import replace

import pytest

from dspkit import Deployment, DspkitError, Plant, Simulator, Topology, apps, run, workload
from dspkit.apps import App
from dspkit.core import applications, merge, run_together
from dspkit.policies.ds2 import DS2
from dspkit.policies.static import Static
from dspkit.simulator import Cluster, MetricsOutage, Node, NodeDown, Service

ROOM = {f"node-{i}": Node(64) for i in (1, 2)}
SMALL = {"node-1": Node(2), "node-2": Node(2)}


def _app(name="a", seconds=1e-3, load=500, nodes=SMALL, **plant):
    services = {"read": Service(1e-5), "work": Service(seconds)}
    return App(name, Topology.chain("read", "work"), Plant(services, nodes, **plant), workload.Constant(load), 1, "x")


def test_with_room_for_all_each_runs_as_it_does_alone():
    tenants = {"words": apps.word_count(), "star": apps.star(), "top": apps.rolling_top_words()}
    tenants = {n: replace(a, plant=replace(a.plant, nodes=ROOM, noise=0.0), workers=None) for n, a in tenants.items()}
    cluster, alone = Cluster(tenants), {n: a.simulator() for n, a in tenants.items()}
    for _ in range(20):
        cluster.observe()
        for name, simulator in alone.items():
            shared, own = cluster.seen[name][-1], simulator.observe()
            assert shared.throughput == pytest.approx(own.throughput)
            for operator, m in own.operators.items():
                assert vars(shared.operators[operator]) == pytest.approx(vars(m))
            for kind in ("latency", "event_latency"):
                assert getattr(shared, kind).p99 == pytest.approx(getattr(own, kind).p99)


def test_what_one_takes_of_the_cores_the_other_lacks():
    """Two cores in all: 300/s of 1 ms are a third of one, 3000/s of 1 ms are more than what is left."""
    nodes = {"node-1": Node(2)}
    cluster = Cluster({"calm": _app(load=300, nodes=nodes), "busy": _app(load=3000, nodes=nodes)})
    busy = Deployment({"read": 1, "work": 3})
    cluster.deploy_one("busy", busy)
    for _ in range(12):
        whole = cluster.observe()
    calm, busy = (cluster.seen[a][-1] for a in ("calm", "busy"))
    assert calm.throughput == pytest.approx(300, rel=1e-6)
    assert busy.throughput == pytest.approx(1700 * (1 - 0.02), rel=0.01)
    assert whole.throughput == pytest.approx(calm.throughput + busy.throughput)
    assert calm.nodes == busy.nodes == {"node-1": pytest.approx(1.0)}


def test_a_change_stops_the_application_that_changes_and_no_other():
    cluster = Cluster({"a": _app(pause_s=7.0), "b": _app(pause_s=7.0)})
    cluster.observe()
    before = {i: n for i, n in cluster.placement.items() if i[0].startswith("b/")}
    cluster.deploy_one("a", Deployment({"read": 1, "work": 2}))
    cluster.observe()
    assert [cluster.seen[a][-1].downtime_s for a in "ab"] == [7.0, 0.0]
    assert {i: n for i, n in cluster.placement.items() if i[0].startswith("b/")} == before
    cluster.deploy(replace(cluster.deployment, workers=1))
    cluster.observe()
    assert [cluster.seen[a][-1].downtime_s for a in "ab"] == [7.0, 7.0]
    assert set(cluster.placement.values()) == {"node-1"}


def test_pauses_by_instance_hold_who_comes_and_only_in_who_changes():
    """Instances do 1000/s, and 1500/s come. With a third one the two others go on; of one that is left nobody waits; of
    two that move both do. So it is for who runs alone, too; the neighbour never stops."""
    app = _app(load=1500, pause_kind="instances", pause_s=7.0, nodes=ROOM)
    start = {"read": 1, "work": 2}
    both = Deployment({f"{a}/{n}": k for a in "ab" for n, k in start.items()}, 1)
    cluster = Cluster({"a": app, "b": app}, deployment=both)
    alone = Simulator(app.topology, app.plant, app.workload, deployment=Deployment(start, 1))
    a, b = cluster.seen["a"], cluster.seen["b"]
    cluster.observe()
    alone.observe()
    moved = {("work", 0): "node-2", ("work", 1): "node-2", ("read", 0): "node-1"}
    steps = (
        (Deployment({"read": 1, "work": 3}, 1), 1500, 0),
        (Deployment({"read": 1, "work": 1}, 1), 1000, 0),
        (Deployment({"read": 1, "work": 2}, None, moved), 600, 7),  # three seconds of 2000/s
    )
    for then, through, stood in steps:
        cluster.deploy_one("a", then)
        alone.deploy(then)
        cluster.observe()
        own = alone.observe()
        assert b[-1].downtime_s == 0.0
        assert b[-1].throughput == pytest.approx(1500, rel=0.01)
        assert a[-1].throughput == pytest.approx(through, rel=0.01)
        assert a[-1].downtime_s == pytest.approx(stood)
        assert (a[-1].downtime_s, a[-1].throughput) == pytest.approx((own.downtime_s, own.throughput))
    offered, ended = (10 * sum(getattr(s, name) for s in a) for name in ("source_rate", "throughput"))
    assert offered == pytest.approx(ended + sum(m.backlog for m in a[-1].operators.values()))


def test_records_are_conserved_application_by_application():
    cluster = Cluster({"a": _app(load=1500), "b": _app(load=300)})  # a's work does 1000/s
    offered = ended = 0.0
    for _ in range(10):
        cluster.observe()
        seen = cluster.seen["a"][-1]
        offered, ended = offered + 10 * seen.source_rate, ended + 10 * seen.throughput
        waiting = sum(m.backlog for m in seen.operators.values())
        assert offered == pytest.approx(ended + waiting)


def test_tenants_play_in_step_whoever_asks_first():
    cluster = Cluster({"a": _app(), "b": _app()})
    a, b = cluster.tenants["a"], cluster.tenants["b"]
    assert [a.observe().t, a.observe().t, b.observe().t, b.observe().t, b.observe().t] == [10, 20, 10, 20, 30]


def test_each_tenant_has_its_own_policy_and_its_own_nodes():
    cluster = Cluster({"a": _app(load=1500, nodes=ROOM, pause_s=1), "b": _app(load=300, nodes=ROOM)})
    cluster.deploy_one("b", Deployment({"read": 1, "work": 1}, workers=1))
    histories = run_together({"a": DS2(), "b": Static()}, cluster.tenants, steps=20)
    assert histories["a"][-1].snapshot.deployment.parallelism["work"] == 2
    assert histories["a"][-1].snapshot.throughput == pytest.approx(1500, rel=0.05)
    assert histories["b"][-1].snapshot.deployment == Deployment({"read": 1, "work": 1}, workers=1)
    assert set(histories["b"][-1].snapshot.nodes) == {"node-1"}


def test_one_policy_steers_all_as_one_job():
    history = run(DS2(), Cluster({"a": _app(load=1500, nodes=ROOM), "b": _app(load=2500, nodes=ROOM)}), steps=4)
    assert history[-1].snapshot.deployment.parallelism == {"a/read": 1, "a/work": 2, "b/read": 1, "b/work": 3}


def test_a_dead_node_moves_those_on_it_and_silence_is_heard():
    faults = (NodeDown(12, 100, node="node-2"), MetricsOutage(0, 15, operator="work"))
    cluster = Cluster({"a": _app(pause_s=3.0, faults=faults), "b": _app(pause_s=3.0)})
    cluster.deploy_one("b", Deployment({"read": 1, "work": 1}, workers=1))
    cluster.observe()
    cluster.observe()
    a, b = (cluster.seen[n] for n in "ab")
    assert [a[1].downtime_s, b[1].downtime_s] == [3.0, 0.0]
    assert set(cluster.placement.values()) == {"node-1"}
    assert ["work" in s.operators for s in (*a, *b)] == [False, False, True, True]


@pytest.mark.parametrize(
    ("tenants", "said"),
    [
        ({}, "at least one by name"),
        ([_app()], "at least one by name"),
        ({"a/b": _app()}, "without '/'"),
        ({"a": 3}, "a Topology under a name"),
        ({"a": _app(), "b": apps.tweet_words()}, "overflow='block'"),
        ({"a": _app(), "b": _app(noise=0.5)}, "the same value for all"),
        ({"a": _app(execution="micro-batch")}, "micro-batch job by itself"),
        ({"a": _app(pause_kind="restart")}, "loses no records"),
        ({"a": _app(faults=(NodeDown(1, 1, node="node-1", loses=True),))}, "loses=False"),
    ],
)
def test_what_cannot_share_is_refused_in_words(tenants, said):
    with pytest.raises(DspkitError, match=said):
        Cluster(tenants)


def test_a_policy_is_needed_for_each_backend():
    cluster = Cluster({"a": _app(), "b": _app()})
    with pytest.raises(DspkitError, match="one for each of"):
        run_together({"a": DS2()}, cluster.tenants, steps=1)


def test_merged_graphs_fall_into_the_applications_they_were():
    one, two = Topology.chain("x", "y"), apps.diamond().topology
    both = merge({"one": one, "two": two})
    assert applications(both) == {"one": ("one/x", "one/y"), "two": tuple(n for n in both.order if n[:3] == "two")}
    assert applications(two) == {two.sources[0]: two.order}
    assert set(applications(merge({"only": one}))) == {"only"}
    with pytest.raises(DspkitError, match="two or more"):
        merge({"one": one, "single": Topology(("lone",))})


def test_the_engines_share_of_a_node():
    """u cores of work, 0.5 u and 0.2 cores of the engine; work has what that leaves of the node."""
    node = Node(4, overhead_share=0.5, overhead_cores=0.2)
    plant = Plant({"read": Service(1e-6), "work": Service(1e-3)}, {"n": node})
    chain = Topology.chain("read", "work")
    for engine in ("fluid", "records"):
        full = Simulator(chain, plant, workload.Constant(9000), deployment=Deployment({"read": 1, "work": 4}),
                         engine=engine, seed=1)  # fmt: skip
        for _ in range(3):
            last = full.observe()
        assert last.throughput == pytest.approx(1000 * 3.8 / 1.5, rel=0.02)
        assert last.nodes["n"] == pytest.approx(1.0, abs=0.01)
        calm = Simulator(chain, plant, workload.Constant(800), engine=engine, seed=1)
        calm.observe()
        assert calm.observe().nodes["n"] == pytest.approx((0.8008 * 1.5 + 0.2) / 4, rel=0.05)


def test_a_run_of_all_is_saved_drawn_and_reported_like_any_other(tmp_path):
    from dspkit import History, plots, report

    history = run(DS2(), Cluster({"a": _app(load=1500), "b": _app()}), steps=4)
    assert History.load(history.save(tmp_path / "both.parquet")) == history
    assert plots.topology(history.topology, history[-1].snapshot).summary
    assert "a/work" in report.from_history(history, tmp_path / "both.html").read_text()
