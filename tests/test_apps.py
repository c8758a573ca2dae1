"""The applications: their answers, worked out batch by batch over several instances, are those of plain Python."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import numpy as np
import pytest

from dspkit import topologies
from dspkit.apps import available, logs, nexmark, rehearse, store, taxi, tweets, yahoo
from dspkit.apps.base import LiveApp, forget
from dspkit.apps.draw import draw, share
from dspkit.errors import DspkitError
from dspkit.workload import Jump

LOAD = Jump(40, 120, 30)  # 70 s: seven windows, and bidders who pause


@pytest.fixture(params=sorted(available()))
def app(request: pytest.FixtureRequest) -> LiveApp:
    made: LiveApp = available()[request.param]()
    return made


@pytest.mark.parametrize("instances", [1, 3])
def test_the_answers_are_those_of_plain_python(app: LiveApp, instances: int) -> None:
    ids = np.random.default_rng(1).permutation(6000)  # they come in any order
    source = app.source(LOAD)
    batches = [app.make(part, source.event_s(part)) for part in np.array_split(ids, 40)]
    got, want = rehearse(app, batches, instances), app.oracle(app.rows(LOAD, np.sort(ids)))
    assert want
    for operator, answers in want.items():
        assert answers
        assert got[operator] == answers, operator


def test_what_an_app_sends_is_what_it_says(app: LiveApp) -> None:
    """Schemas, keys, and that the same numbers make the same records, alone or together."""
    source, ids = app.source(LOAD), np.arange(500)
    whole = app.make(ids, source.event_s(ids))
    assert whole.schema.equals(source.schema)
    assert app.make(ids[37:41], source.event_s(ids[37:41])).to_pylist() == whole.slice(37, 4).to_pylist()
    assert set(app.micros) <= set(app.functions) == set(app.topology.order) - {"read"}
    for operator in app.topology.operators:
        function = app.functions.get(operator.name)
        assert operator.stateful == bool(function and function.stateful)
        for receiver in app.topology.downstream(operator.name):
            sent = function.schema if function else source.schema
            assert app.functions[receiver].key in ("", *sent.names)


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
    """Half are clearly Spanish, and a fifth of the others; the graph is the simulated one behind a source."""
    ids = np.arange(20_000)
    rows = tweets.tweets(ids, ids / 1000).to_pylist()
    answer = tweets.oracle(rows)
    spanish = answer["store"]["spanish"] / len(rows)
    assert spanish == pytest.approx(0.5 + 0.5 * 0.2, abs=0.02)
    simulated = topologies.tweet_branches().topology
    assert set(tweets.TOPOLOGY.edges) == {("read", "stop_words"), *simulated.edges}


def test_taxis_that_leave_the_grid_and_lines_that_are_broken_do_not_count() -> None:
    ids = np.arange(10_000)
    kept = sum(taxi.oracle(taxi.trips(ids, ids / 1000).to_pylist())["count"].values())
    assert kept / len(ids) == pytest.approx(0.97, abs=0.01)
    hits = logs.oracle(logs.lines(ids, ids / 1000).to_pylist())["index"]
    assert sum(page["hits"] for page in hits.values()) / len(ids) == pytest.approx(0.98, abs=0.01)


def test_old_windows_are_forgotten() -> None:
    known = dict.fromkeys(range(1000), "x")
    forget(known, lambda w: w, 360)
    assert sorted(known) == list(range(640, 1000))
    forget(empty := {}, lambda w: w, 360)
    assert empty == {}


def test_a_store_answers_no_faster_than_its_ceiling_however_many_ask() -> None:
    """Booked, not slept: a thousand answers at 2000 a second are half a second of the store's time for all together."""
    table = store.Table(yahoo.campaigns(), 2000)
    began = time.time()
    threads = [threading.Thread(target=lambda: [table.open()(["ad-7"] * 50) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert time.time() - began >= 0.5
    assert store.Table(yahoo.campaigns()).open()(["ad-7", "ad-999"]) == [0, 99]


def test_a_real_redis_answers_as_the_table_does(stream: Any, redis_url: str) -> None:
    kept = store.Redis(redis_url).fill(yahoo.campaigns())
    app, ids = yahoo.app(kept), np.arange(2000)
    source = app.source(LOAD)
    got = rehearse(app, [app.make(part, source.event_s(part)) for part in np.array_split(ids, 10)])
    assert got["count"] == app.oracle(app.rows(LOAD, ids))["count"]
    with pytest.raises(DspkitError, match="fill the store"):
        kept.open()(["ad-1", "no ad"])


def test_what_does_not_fit_is_refused(app: LiveApp) -> None:
    for micros in (-1, {"typo": 3}, float("nan")):
        with pytest.raises(DspkitError):
            app.timed(micros)
    with pytest.raises(DspkitError, match="rate above 0"):
        store.Ceiling(0)


def test_service_time_is_paid_for_each_record() -> None:
    app = available()["word_count"]()
    ids = np.arange(100)
    began = time.perf_counter()
    words = list(app.timed({"split": 2000})["split"].run(iter((app.make(ids, ids / 100),))))
    assert time.perf_counter() - began >= 0.2
    assert sum(batch.num_rows for batch in words) == 1000
