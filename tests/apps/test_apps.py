"""The applications: their answers, worked out batch by batch over several instances, are those of plain Python."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from dspkit import apps
from dspkit.apps import App, Live, nexmark, rehearse
from dspkit.apps import autrascale as ads
from dspkit.apps import autrascale as store
from dspkit.apps import fission as tweets
from dspkit.apps import nardelli as logs
from dspkit.apps import taxi_routes as trips
from dspkit.apps.live import draw, forget, share
from dspkit.core import DspkitError
from dspkit.spark import TraceSource
from dspkit.workload import Jump

LOAD = Jump(40, 120, 30)  # 70 s: seven windows, and bidders who pause


REAL = sorted(name for name, make in apps.available().items() if make().live)  # the others are synthetic live


@pytest.fixture(params=REAL)
def app(request: pytest.FixtureRequest) -> App:
    return apps.get(request.param)()


def _live(app: App) -> Live:
    assert app.live is not None
    return app.live


def test_eight_applications_have_functions_of_their_own() -> None:
    assert set(REAL) >= {"word_count", "yahoo", "taxi", "log_processing", "tweet_branches", "query5", "query11"}


@pytest.mark.parametrize("instances", [1, 3])
def test_the_answers_are_those_of_plain_python(app: App, instances: int) -> None:
    ids = np.random.default_rng(1).permutation(6000)  # they come in any order
    source = app.source(LOAD)
    assert isinstance(source, TraceSource)
    batches = [_live(app).make(part, source.event_s(part)) for part in np.array_split(ids, 40)]
    got, want = rehearse(app, batches, instances).known, _live(app).oracle(app.rows(LOAD, np.sort(ids)))
    assert want
    for operator, answers in want.items():
        assert answers
        assert got[operator] == answers, operator


def test_what_an_app_sends_is_what_it_says(app: App) -> None:
    """Schemas, keys, and that the same numbers make the same records, alone or together."""
    source, ids, live = app.source(LOAD), np.arange(500), _live(app)
    whole, functions = live.make(ids, source.event_s(ids)), live.operators()
    assert whole.schema.equals(source.schema)
    assert live.make(ids[37:41], source.event_s(ids[37:41])).to_pylist() == whole.slice(37, 4).to_pylist()
    topology = app.as_live().topology
    assert set(live.micros) <= set(functions) <= set(topology.order) <= set(functions) | set(topology.sources)
    assert (topology.order, topology.edges) == (app.topology.order, app.topology.edges)
    for operator in topology.operators:
        function = functions.get(operator.name)
        assert operator.stateful == bool(function and function.stateful)
        for receiver in topology.downstream(operator.name):
            sent = function.schema if function else source.schema
            assert set(functions[receiver].keys) <= set(sent.names)


def test_random_numbers_are_uniform_and_do_not_depend_on_each_other() -> None:
    """Chi-square with 99 degrees of freedom: beyond 149 once in a thousand times; the seed is fixed."""
    ids = np.arange(100_000)
    for salt in (1, 2, 77):
        counts = np.bincount(draw(ids, salt, 100), minlength=100)
        assert ((counts - 1000) ** 2 / 1000).sum() < 149
    pairs = np.bincount(10 * draw(ids, 1, 10) + draw(ids, 2, 10), minlength=100)
    assert ((pairs - 1000) ** 2 / 1000).sum() < 149
    assert 0 <= share(ids, 3).min() < 0.001 < 0.999 < share(ids, 3).max() < 1


def test_nexmark_has_its_generators_proportions() -> None:
    ids = np.arange(200_000)
    rows = nexmark.events(ids, ids / 1000).to_pandas()
    assert Counter(rows.kind) == {"person": 4_000, "auction": 12_000, "bid": 184_000}
    bids = rows[rows.kind == "bid"]
    last = 1000 + (bids.index // 50) * 3 + 2
    assert (bids.auction == last // 100 * 100).mean() == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    person = 1000 + bids.index // 50
    assert (bids.bidder == person // 100 * 100 + 1).mean() == pytest.approx(0.75, abs=0.01)
    assert (bids.bidder <= np.maximum(person, person // 100 * 100 + 1)).all()
    assert np.log10(bids.price).mean() == pytest.approx(2 + 3, abs=0.02)  # 100 * 10 ** 6u
    people = rows[rows.kind == "person"]
    assert people.bidder.is_unique


def test_tweets_branch_as_those_of_the_paper_are_simulated() -> None:
    """Half are clearly Spanish, and a fifth of the others, as the plant's selectivities say."""
    ids = np.arange(20_000)
    rows = tweets.tweets(ids, ids / 1000).to_pylist()
    answer = tweets.oracle(rows)
    spanish = answer["store"]["spanish"] / len(rows)
    assert spanish == pytest.approx(0.5 + 0.5 * 0.2, abs=0.02)
    assert apps.get("tweet_branches")().plant.services["dictionary"].toward("count") == 0.2


def test_taxis_that_leave_the_grid_and_lines_that_are_broken_do_not_count() -> None:
    ids = np.arange(10_000)
    kept = sum(trips.oracle(trips.trips(ids, ids / 1000).to_pylist())["count_by_window"].values())
    assert kept / len(ids) == pytest.approx(0.97, abs=0.01)
    hits = logs.oracle(logs.lines(ids, ids / 1000).to_pylist())["index"]
    assert sum(page["hits"] for page in hits.values()) / len(ids) == pytest.approx(0.98, abs=0.01)


def test_the_metronome_reaches_every_instance_that_counts() -> None:
    """So that each forgets what is too old, in windows in which it has no trips of its own."""
    from dspkit.spark.dataflow.exchange import owners

    at, old = np.array([1e4, 1e4 + trips.WINDOW_S]), {5: 1, 900 * trips._SHIFT + 5: 1}
    batch = pa.RecordBatch.from_arrays([pa.array(at)], names=["at_s"])
    (ticks,) = trips.metronome(iter((batch,)))
    assert all(set(owners(ticks.column("route"), k)) == set(range(k)) for k in range(1, 65))
    assert [b.num_rows for b in trips.count_by_window(iter((ticks,)), old)] == [0]
    assert list(old) == [900 * trips._SHIFT + 5]


def test_old_windows_are_forgotten() -> None:
    known = dict.fromkeys(range(1000), "x")
    forget(known, lambda w: w, 360)
    assert sorted(known) == list(range(640, 1000))
    forget(empty := {}, lambda w: w, 360)
    assert empty == {}


def test_a_store_answers_no_faster_than_its_ceiling_however_many_ask() -> None:
    """Booked, not slept: a thousand answers at 2000 a second are half a second of the store's time for all together."""
    table = store.Table(ads.campaigns(), 2000)
    began = time.time()
    threads = [threading.Thread(target=lambda: [table.open()(["ad-7"] * 50) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.time() - began >= 0.5
    assert store.Table(ads.campaigns()).open()(["ad-7", "ad-999"]) == [0, 99]


def test_a_real_redis_answers_as_the_table_does(stream: Any, redis_url: str) -> None:
    kept = store.Redis(redis_url).fill(ads.campaigns())
    app, ids = apps.get("yahoo")(store=kept), np.arange(2000)
    source, live = app.source(LOAD), _live(app)
    got = rehearse(app, [live.make(part, source.event_s(part)) for part in np.array_split(ids, 10)])
    assert got.known["store"] == live.oracle(app.rows(LOAD, ids))["store"]
    with pytest.raises(DspkitError, match="fill the store"):
        kept.open()(["ad-1", "no ad"])


def test_what_does_not_fit_is_refused(app: App) -> None:
    for micros in (-1, {"typo": 3}, float("nan")):
        with pytest.raises(DspkitError):
            _live(app).timed(micros)
    for cpu in (-0.1, 1.1, {"typo": 1}, float("nan")):
        with pytest.raises(DspkitError):
            _live(app).timed(cpu=cpu)
    with pytest.raises(DspkitError, match="rate above 0"):
        store.RateLimit(0)


def test_service_time_is_paid_for_each_record() -> None:
    live, ids = _live(apps.get("word_count")()), np.arange(100)
    for cpu in (0.0, 0.5, 1.0):
        began, worked = time.perf_counter(), time.thread_time()
        words = list(live.timed({"flat_map": 2000}, cpu)["flat_map"].run(iter((live.make(ids, ids / 100),))))
        assert time.perf_counter() - began >= 0.2
        assert 0.2 * cpu <= time.thread_time() - worked < 0.2 * cpu + 0.1
    assert sum(batch.num_rows for batch in words) == 1000
