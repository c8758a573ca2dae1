"""What every backend keeps to. A new backend adds a maker to MAKERS and passes."""

from dataclasses import replace
from functools import partial

import pytest

import live
from dspkit import Backend, Deployment, DspkitError, Snapshot, topologies
from dspkit.errors import BackendError, DeploymentError
from dspkit.simulator import Cluster


def _simulator():
    return topologies.word_count().simulator(window_s=5.0)


def _cluster():
    return Cluster({"words": topologies.word_count(), "star": topologies.star()}, window_s=5.0)


def _tenant():
    return _cluster().tenants["star"]


def _spark(mode):
    return live.job(mode=mode)


MAKERS = {
    "simulator": _simulator,
    "cluster": _cluster,
    "tenant": _tenant,
    "spark-realtime": partial(_spark, "realtime"),
    "spark-microbatch": partial(_spark, "microbatch"),
}


def _marked(name):
    return pytest.param(name, marks=[pytest.mark.spark] * name.startswith("spark"))


@pytest.fixture(scope="module", params=map(_marked, MAKERS))
def maker(request):
    """One backend after the other: two kinds of Spark do not fit into one process."""
    return MAKERS[request.param]


@pytest.fixture
def backend(maker):
    with maker() as backend:
        yield backend


def _more(deployment: Deployment) -> Deployment:
    name = next(iter(deployment.parallelism))
    return deployment.scaled({name: deployment.parallelism[name] + 1})


def test_it_is_a_backend_that_says_what_it_can_change(backend):
    assert isinstance(backend, Backend)
    assert backend.knobs <= {"parallelism", "workers", "placement", "settings"}
    assert backend.topology.order


def test_windows_follow_one_another(backend):
    first, second = backend.observe(), backend.observe()
    assert isinstance(first, Snapshot)
    assert first.t > 0
    assert second.t == pytest.approx(first.t + second.window_s)


def test_a_snapshot_covers_the_whole_topology(backend):
    snapshot = backend.observe()
    topology = backend.topology
    assert set(snapshot.operators) == set(topology.order)
    assert set(snapshot.source_rates) == set(topology.sources)
    assert set(snapshot.edge_rates) == set(topology.edges)
    topology.check(snapshot.deployment)
    for name, metrics in snapshot.operators.items():
        assert metrics.parallelism == snapshot.deployment.parallelism[name]


def test_rates_of_a_window_fit_together(backend):
    for _ in range(3):
        snapshot = backend.observe()
        for name, m in snapshot.operators.items():
            downstream = backend.topology.downstream(name)
            if downstream:
                sent = sum(snapshot.edge_rates[name, child] for child in downstream)
                assert m.output_rate == pytest.approx(sent)
            if m.true_rate is not None:  # a busy share of the time at the true rate is what was processed
                assert m.processing_rate == pytest.approx(m.true_rate * m.parallelism * m.utilisation, rel=0.05)
        assert snapshot.lag == pytest.approx(sum(snapshot.operators[s].backlog for s in backend.topology.sources))
        if snapshot.latency is not None and snapshot.event_latency is not None:
            assert snapshot.latency.p50 <= snapshot.latency.p95 <= snapshot.latency.p99
            assert snapshot.event_latency.mean >= snapshot.latency.mean


def test_what_is_deployed_is_what_runs_in_the_next_window(backend):
    target = _more(backend.observe().deployment)
    backend.deploy(target)
    assert backend.observe().deployment == target


def test_a_deployment_that_does_not_fit_changes_nothing(backend):
    before = backend.observe().deployment
    name = next(iter(before.parallelism))
    for wrong in ({**before.parallelism, name: 10_000}, {name: 1}, {**before.parallelism, "typo": 1}):
        with pytest.raises(DeploymentError):
            backend.deploy(replace(before, parallelism=wrong))
    assert backend.observe().deployment == before


def test_what_is_no_knob_is_refused(backend):
    before = backend.observe().deployment
    name = next(iter(before.parallelism))
    other = {"workers": 7, "settings": {"x": 1}, "placement": {(name, 0): "elsewhere"}}
    for field in {"workers", "settings", "placement"} - backend.knobs:
        with pytest.raises(DspkitError, match=field):
            backend.deploy(replace(before, **{field: other[field]}))
    assert backend.observe().deployment == before


def test_closing_twice_is_fine_and_nothing_works_afterwards(backend):
    last = backend.observe().deployment
    backend.close()
    backend.close()
    for call in (backend.observe, lambda: backend.deploy(_more(last))):
        with pytest.raises(BackendError, match="after close"):
            call()


def test_its_repr_says_what_it_is(backend):
    assert backend.topology.order[0] in repr(backend)
