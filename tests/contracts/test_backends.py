"""Every backend keeps to the contract. A new backend adds a maker to MAKERS and passes."""

import time
from datetime import UTC, datetime
from functools import partial

import pytest

import live
from dspkit import apps
from dspkit.simulator import Cluster
from dspkit.spark import attach
from dspkit.testing import BACKEND_CHECKS


def _simulator():
    return apps.word_count().simulator(window_s=5.0)


def _cluster():
    return Cluster({"words": apps.word_count(), "star": apps.star()}, window_s=5.0)


def _tenant():
    return _cluster().tenants["star"]


def _spark(mode):
    return live.job(mode=mode)


class _Stock:
    """A query as Spark Connect shows it, with a batch every 50 ms."""

    isActive, id, runId, name = True, "q", "r", "words"

    def __init__(self):
        self.status = {"isTriggerActive": False, "isDataAvailable": False, "message": ""}
        self.began = time.time()

    @property
    def recentProgress(self):
        for i in range(int((time.time() - self.began) / 0.05)):
            stamp = datetime.fromtimestamp(self.began + 0.05 * i, UTC).isoformat(timespec="milliseconds")
            took = {"addBatch": 20, "triggerExecution": 30}
            yield {"id": "q", "batchId": i, "timestamp": stamp, "numInputRows": 40, "durationMs": took}


def _attached():
    return attach(_Stock(), window_s=0.2, waiting=lambda: 7.0)


MAKERS = {
    "attached": _attached,
    "simulator": _simulator,
    "cluster": _cluster,
    "tenant": _tenant,
    "spark-realtime": partial(_spark, "realtime"),
    "spark-microbatch": partial(_spark, "microbatch"),
}


def _marked(name):
    marks = [pytest.mark.spark] * name.startswith("spark") + [pytest.mark.slow] * (name == "spark-microbatch")
    return pytest.param(name, marks=marks)


@pytest.fixture(scope="module", params=map(_marked, MAKERS))
def maker(request):
    """One backend after the other: two kinds of Spark do not fit into one process."""
    return MAKERS[request.param]


@pytest.fixture
def backend(maker):
    with maker() as backend:
        yield backend


@pytest.mark.parametrize("check", BACKEND_CHECKS, ids=lambda check: check.__name__)
def test_it_keeps_to_the_contract(backend, check):
    check(backend)
