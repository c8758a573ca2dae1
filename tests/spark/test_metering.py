"""Meters, their datagrams, and the snapshots computed from them; clocks are the tests' own, and no Spark runs."""

from __future__ import annotations

import json
import os
import random
import socket
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import Deployment, Topology
from dspkit.spark import ThreadError, TraceSource
from dspkit.spark.job import Logs
from dspkit.spark.metering import (
    BLOCKED,
    BUSY,
    WAIT,
    Clock,
    Collector,
    Meter,
    MeterAddress,
    ObservedWindow,
    SourceShares,
    Totals,
    snapshot,
)
from dspkit.workload import Constant


class Time:
    """One clock for all, which moves only when it is set; a core works for half of the time."""

    def __init__(self) -> None:
        self.seconds, self.set_s = 1000.0, 0.0
        self.clock = Clock(lambda: self.seconds, lambda: self.seconds + self.set_s, lambda: self.seconds / 2)


@pytest.fixture
def time() -> Time:
    return Time()


@pytest.fixture
def collector(time: Time) -> Iterator[Collector]:
    made = Collector(clock=time.clock)
    yield made
    made.close()


class Task:
    """A task whose readings are handed over as datagrams when the test wants it."""

    def __init__(self, to: Collector, time: Time, operator: int = 0, instance: int = 0, **about: Any):
        about = {"operator": operator, "token": "0-a", "epoch": 0, "k": [1, 1], "task": f"{instance}.7"} | about
        self.meter, self._to, self._number = Meter(None, about, time.clock), to, 0

    def datagram(self, *, final: bool = False) -> bytes:
        self._number += 1
        reading = self.meter.reading(final=final) | {"number": self._number}
        return self._to.address.sign(json.dumps(reading).encode())

    def send(self, *, final: bool = False) -> None:
        self._to.receive(self.datagram(final=final))

    def sends(self, **edges: tuple[int, Counter[int]]) -> None:
        pairs = ((int(name.removeprefix("to")), each) for name, each in edges.items())
        self.meter.edges = {end: SimpleNamespace(sent=sent, sent_to=to) for end, (sent, to) in pairs}


# Datagrams


def test_a_reading_is_the_work_of_the_task_to_the_second(collector: Collector, time: Time) -> None:
    task = Task(collector, time)
    for doing, seconds in ((BUSY, 2.0), (BLOCKED, 1.0), (WAIT, 4.0), (BUSY, 0.5)):
        task.meter.turn(doing)
        time.seconds += seconds
    task.meter.done = 30
    task.meter.finish(np.array([1e6 * (time.seconds - 1)]), np.array([1e6 * (time.seconds - 8)]))
    task.send()
    counts = collector.totals().operators[0]
    assert [counts[name] for name in ("busy", "blocked", "wait", "cpu", "done", "done 0")] == [2.5, 1, 4, 3.75, 30, 30]
    assert (counts["latency sum"], counts["event sum"]) == (1.0, 8.0)


def test_a_stamp_of_before_the_clock_was_set_back_is_no_latency(collector: Collector, time: Time) -> None:
    task = Task(collector, time)
    time.set_s = -3600.0
    stamps = np.array([1e6 * (time.seconds - 2), 1e6 * (time.seconds - 3602), 1e6 * (time.seconds - 3600 + 0.01)])
    task.meter.finish(stamps, stamps[:1])
    task.send()
    counts = collector.totals().operators[0]
    assert counts["latency sum"] == pytest.approx(2.0, abs=0.001)
    assert counts["event sum"] == 0


@pytest.mark.parametrize(
    ("cpu_s", "queued_s", "work"),
    [(1.0, 0.0, 4.0), (1.0, 2.5, 1.5), (1.0, 9.0, 1.0), (3.0, 2.5, 3.0), (7.0, 0.0, 4.0)],
)
def test_work_is_busy_time_less_that_of_waiting_for_a_core(cpu_s: float, queued_s: float, work: float) -> None:
    """A task is busy for 4 s. It has worked as long as it had a core at least, and never longer than it was busy."""
    spent = {"elapsed": 0.0, "cpu": 0.0, "queued": 0.0}
    meter = Meter(None, {}, Clock(**{name: lambda name=name: spent[name] for name in spent}))  # type: ignore[arg-type]
    meter.turn(BUSY)
    spent |= {"elapsed": 4.0, "cpu": cpu_s, "queued": queued_s}
    assert meter.reading(final=False)["counts"]["work"] == work
    assert meter.hindered == 4.0 / work
    spent["queued"] += 10.0  # waits that are not of its work do not take from it
    assert meter.reading(final=False)["counts"]["work"] == work


@pytest.mark.parametrize(
    "forged",
    [
        b"", b"\x00", b"[" * 60_000, b'{"a":' * 10_000, os.urandom(65_507), b"\xff" * 40, b"{}", b"null", b"x" * 31,
        bytes(32), bytes(33),
    ],
)  # fmt: skip
def test_nothing_unsigned_is_parsed_or_ends_the_thread(
    forged: bytes, collector: Collector, time: Time, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(*_: Any) -> None:
        raise AssertionError("parsed")

    task = Task(collector, time)
    task.meter.done = 5
    task.send()
    with monkeypatch.context() as patched:
        patched.setattr(json, "loads", parsed)
        collector.receive(forged)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as attacker:
        attacker.sendto(forged, (collector.address.host, collector.address.port))
        task.meter.done = 9
        attacker.sendto(task.datagram(), (collector.address.host, collector.address.port))
    _until(lambda: collector.totals().operators[0]["done"] == 9)
    assert collector.thread.failure is None


def test_a_changed_bit_or_another_jobs_secret_makes_a_reading_worthless(collector: Collector, time: Time) -> None:
    task = Task(collector, time)
    task.meter.done = 5
    good = task.datagram()
    for place in (0, 31, 32, 40, len(good) - 1):
        changed = bytearray(good)
        changed[place] ^= 1
        collector.receive(bytes(changed))
    other = MeterAddress("127.0.0.1", 1, os.urandom(32))
    collector.receive(other.sign(good[32:]))
    collector.receive(good[:-1])
    assert collector.totals().operators == {}
    collector.receive(good)
    assert collector.totals().operators[0]["done"] == 5


def test_replays_and_late_readings_change_nothing(collector: Collector, time: Time) -> None:
    """All datagrams of three epochs, each several times and shuffled, after the newest ones: the sums stay."""
    sent = []
    for epoch, token in enumerate(("0-a", "1-b", "2-c", "3-d", "4-e", "5-f")):
        task = Task(collector, time, token=token, epoch=epoch)
        for done in (10, 20, 30):
            time.seconds += 1
            task.meter.done, task.meter.read_to = done, {0: 30 * epoch + done}
            sent.append(task.datagram(final=done == 30))
            collector.receive(sent[-1])
    before = collector.totals()
    assert before.operators[0]["done"] == 180
    assert before.read_to == {0: {0: 180}}
    again = sent * 3
    random.Random(1).shuffle(again)
    for datagram in again:
        collector.receive(datagram)
    assert collector.totals() == before


def test_the_secret_is_not_shown() -> None:
    address = MeterAddress("127.0.0.1", 9, b"secret secret")
    assert "secret" not in repr(address).replace("MeterAddress", "")


def test_a_meter_is_bound_to_the_loopback_address_only(collector: Collector) -> None:
    meter = Meter(collector.address, {"operator": 0, "token": "0-a", "epoch": 0, "k": [1], "task": "0.0"})
    meter.done = 7
    assert meter._socket.getsockname()[0] == "127.0.0.1"
    assert meter._socket.getpeername() == (collector.address.host, collector.address.port)
    meter.close()
    _until(lambda: collector.totals().operators.get(0, Counter())["done"] == 7)


def test_a_reading_of_any_length_arrives_whole(collector: Collector) -> None:
    """A log of 30,000 partitions, and a traceback of a hundred thousand letters outside of ASCII."""
    about = {"operator": 0, "token": "0-a", "epoch": 0, "k": [1], "task": "0.0"}
    meter = Meter(collector.address, about)
    meter.done, meter.read_to = 3, dict.fromkeys(range(30_000), 1 << 60)
    to = Counter(dict.fromkeys(range(3000), 5))
    meter.edges = {1: SimpleNamespace(sent=15_000, sent_to=to)}
    meter.fail("count", "\u4e16" * 100_000)
    meter.close()
    _until(lambda: collector.totals().epoch.get(0, Counter())["edge 1 2999"] == 5 and not collector.totals().tasks[0])
    totals = collector.totals()
    assert len(totals.read_to[0]) == 30_000
    assert (totals.operators[0]["done"], totals.operators[0]["edge 1 0"]) == (3, 5)
    operator, text = collector.blame() or ("", "")
    assert operator == "count"
    assert len(text) > 5000


def test_a_thread_that_ends_is_an_error_that_says_why(collector: Collector, time: Time) -> None:
    assert collector.thread.failure is None
    body = json.dumps({"token": "0-a", "run": 0}).encode()  # signed, but not one of ours: an error of dspkit
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(collector.address.sign(body), (collector.address.host, collector.address.port))
    _until(lambda: collector.thread.failure is not None)
    assert isinstance(collector.thread.failure, ThreadError)
    assert "collects the readings of tasks (KeyError: 'operator')" in str(collector.thread.failure)


def test_a_time_that_is_read_while_the_task_switches_is_counted_once(time: Time) -> None:
    """Another thread switches between the sums of a reading and the time of the present activity."""
    import threading

    meter = Meter(None, {}, time.clock)
    meter.turn(BUSY)
    time.seconds += 5.0
    switch = threading.Thread(target=meter.turn, args=(WAIT,))

    def elapsed() -> float:
        if threading.current_thread() is not switch and not switch.ident:
            switch.start()
            switch.join(0.2)
        return time.seconds

    meter._clock = Clock(elapsed, time.clock.now, time.clock.cpu)
    counts = meter.reading(final=False)["counts"]
    assert (counts["busy"], counts["wait"]) == (5.0, 0.0)
    switch.join()
    time.seconds += 2.0
    counts = meter.reading(final=False)["counts"]
    assert (counts["busy"], counts["wait"]) == (5.0, 2.0)


def test_readings_add_up_to_the_time_that_has_passed_whenever_they_are_taken() -> None:
    import sys
    import threading
    import time as real

    meter, done = Meter(None, {}), threading.Event()
    began = meter._since

    def work() -> None:
        while not done.is_set():
            for doing in (BUSY, BLOCKED, WAIT):
                meter.turn(doing)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    worker = threading.Thread(target=work)
    worker.start()
    try:
        last = dict.fromkeys(("wait", "busy", "blocked"), 0.0)
        for _ in range(3000):
            before = real.perf_counter()
            counts = meter.reading(final=False)["counts"]
            after = real.perf_counter()
            assert before - began - 1e-9 <= sum(counts[name] for name in last) <= after - began + 1e-9
            assert all(counts[name] >= last[name] for name in last)
            last = {name: counts[name] for name in last}
    finally:
        done.set()
        worker.join()
        sys.setswitchinterval(interval)


# Runs of the query


def _run_of(collector: Collector, time: Time, **about: Any) -> Task:
    """A task of the present run of the query."""
    task = Task(collector, time, **about)
    task.meter._about["run"] = collector.address.run
    return task


def test_after_a_failure_only_what_is_committed_counts_as_read(collector: Collector, time: Time, tmp_path: Any) -> None:
    """An epoch dies in which 40 and 70 records were read, of which 10 and 20 are committed."""
    source = TraceSource(Constant(100), partitions=2)
    committed = [[10, 20]]
    logs = Logs({"read": source}, ["read"], SimpleNamespace(own=tmp_path, offsets=lambda: committed))  # type: ignore
    lag = lambda: logs.lag({"read": 200.0}, collector.totals(), ["read"])["read"]  # noqa: E731
    assert lag() == 170
    collector.begin_run()
    dies = _run_of(collector, time, token="1-a", epoch=1)
    dies.meter.read_to = {0: 40, 1: 70}
    dies.send()
    assert lag() == 90
    logs.go_back()
    collector.begin_run()
    assert lag() == 170
    dies.meter.read_to = {0: 45, 1: 80}
    dies.send()  # it outlives its query
    assert lag() == 170
    again = _run_of(collector, time, token="1-b", epoch=1)
    again.meter.read_to = {0: 15}
    again.send()
    dies.send(final=True)
    assert lag() == 165
    committed = [[40, 70]]
    logs.go_back()  # what was committed before the next failure
    collector.begin_run()
    assert lag() == 90


def test_a_late_reading_of_the_epoch_before_does_not_take_back_what_was_read(collector: Collector, time: Time) -> None:
    old, new = Task(collector, time), Task(collector, time, token="1-b", epoch=1)
    old.meter.read_to, new.meter.read_to = {0: 30}, {0: 35}
    new.send()
    old.send(final=True)
    assert collector.totals().read_to == {0: {0: 35}}


def test_a_task_that_outlives_its_query_does_not_fail_the_next_one(collector: Collector) -> None:
    about = {"operator": 0, "token": "0-a", "epoch": 0, "k": [1], "task": "0.0"}
    old, new = (Meter(collector.begin_run(), about | {"token": token}) for token in ("0-a", "0-b"))
    old.fail("count", "ValueError: of the run before")
    new.done = 1
    new.close()
    _until(lambda: collector.totals().operators.get(0, Counter())["done"] == 1)
    assert collector.blame() is None
    new = Meter(collector.begin_run(), about | {"token": "0-c"})
    new.fail("count", "ValueError: of this run")
    new.close()
    _until(lambda: collector.totals().token == "0-c")
    assert collector.blame() == ("count", "ValueError: of this run")
    assert collector.blame() is None
    old.close()


class Lossy(Collector):
    """A collector to which the first `lose` last readings do not get through."""

    lose = asked = 0

    def receive(self, datagram: bytes) -> bytes | None:
        body = self.address.verified(datagram)
        asks = body is not None and bool(json.loads(body).get("answer"))
        self.asked += asks
        self.lose -= (lost := asks and self.lose > 0)
        return None if lost else super().receive(datagram)


@pytest.mark.parametrize("lose", [0, 1, 3])
@pytest.mark.parametrize("partitions", [1, 2500])
def test_the_last_counts_arrive_although_datagrams_are_lost(lose: int, partitions: int) -> None:
    """Also parts of a long reading; and what has arrived is not sent for ever."""
    collector = Lossy()
    try:
        collector.lose = lose
        meter = Meter(collector.address, {"operator": 0, "token": "0-a", "epoch": 0, "k": [1], "task": "0.0"})
        meter.done, meter.read_to = 7, dict.fromkeys(range(partitions), 5)
        meter.close()
        _until(lambda: len(collector.totals().read_to.get(0, {})) == partitions and not collector.totals().tasks[0])
        assert collector.totals().operators[0]["done"] == 7
        meter._thread.join(10)
        assert not meter._thread.is_alive()
        parts = -(-partitions // 1000)
        assert parts * (1 + -(-lose // parts)) <= collector.asked < 5 * parts
    finally:
        collector.close()


def test_a_forged_receipt_is_none(collector: Collector) -> None:
    address = collector.address
    datagram = address.sign(b"{}")
    others = [MeterAddress("127.0.0.1", 1, os.urandom(32)).receipt(datagram), address.receipt(address.sign(b"[]"))]
    assert address.receipt(datagram) not in [*others, datagram[:32], b""]


def test_lost_last_readings_of_a_committed_epoch_are_reported(
    collector: Collector, time: Time, caplog: pytest.LogCaptureFixture
) -> None:
    for epoch in range(8):
        final = epoch not in (1, 3)
        _epoch(collector, time, 1.0, final=final, epoch=epoch, token=f"{epoch}-a")
        if epoch == 3:  # this attempt dies, and another one commits the epoch
            _epoch(collector, time, 1.0, epoch=epoch, token=f"{epoch}-b")
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert "1 tasks of epoch 1 " in said[0]


def _until(holds: Any) -> None:
    import time

    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


# Epochs, commits and downtime


def _epoch(collector: Collector, time: Time, seconds: float, *, final: bool = True, **about: Any) -> None:
    task = Task(collector, time, **about)
    task.send()
    time.seconds += seconds
    task.send(final=final)


def _stops(collector: Collector) -> tuple[list[tuple[float, float]], list[tuple[float, float]]]:
    totals = collector.totals()
    return totals.gaps, totals.commits


def test_a_routine_commit_is_no_downtime(collector: Collector, time: Time) -> None:
    for epoch in range(3):
        _epoch(collector, time, 10.0, epoch=epoch, token=f"{epoch}-a")
        time.seconds += 0.5
    assert _stops(collector) == ([], [(1010, 1010.5), (1020.5, 1021), (1031, 1031.5)])  # the last one has not ended


@pytest.mark.parametrize("step", [3600.0, -3600.0, 0.7, -0.7])
@pytest.mark.parametrize("when", ["between epochs", "within an epoch", "before a late reading"])
def test_a_clock_that_is_set_makes_no_commit_longer_or_shorter(
    when: str, step: float, collector: Collector, time: Time
) -> None:
    for epoch in range(4):
        _epoch(collector, time, 10.0, epoch=epoch, token=f"{epoch}-a", final=when != "within an epoch")
        late = Task(collector, time, operator=1, token=f"{epoch}-a", epoch=epoch).datagram(final=True)
        if epoch == 1:
            time.set_s = step
        if when == "before a late reading":
            collector.receive(late)
        time.seconds += 0.5
    gaps, commits = _stops(collector)
    assert gaps == []
    assert [round(b - a, 6) for a, b in commits][:3] == [0.5] * 3
    assert commits[1][0] == pytest.approx(1020.5 + step)  # as the clock says now
    assert collector.moved_s == pytest.approx(step)


@pytest.mark.parametrize("how", ["parallelism", "deploy", "same epoch", "restart"])
def test_a_change_or_a_failure_is_downtime(how: str, collector: Collector, time: Time) -> None:
    _epoch(collector, time, 10.0, epoch=4, token="4-a")
    if how == "deploy":
        collector.disturb()
    if how == "restart":
        collector.restarts = lambda: 1
    time.seconds += 2.0
    if how in ("deploy", "restart"):  # known while it lasts
        assert _stops(collector) == ([(1010, 1012)], [])
    time.seconds += 1.0
    k, epoch = [1, 2] if how == "parallelism" else [1, 1], 4 if how == "same epoch" else 5
    _epoch(collector, time, 10.0, epoch=epoch, token="x-b", k=k)
    assert _stops(collector) == ([(1010, 1013)], [(1023, 1023)][:0])
    time.seconds += 0.5
    _epoch(collector, time, 10.0, epoch=epoch + 1, token="x-c", k=k)  # and the next one is routine again
    assert _stops(collector) == ([(1010, 1013)], [(1023, 1023.5)])


def test_a_failure_counts_from_the_last_reading_although_tasks_never_said_that_they_ended(
    collector: Collector, time: Time
) -> None:
    _epoch(collector, time, 10.0, final=False, epoch=0)
    time.seconds += 5.0
    assert _stops(collector) == ([], [])  # it may be busy
    collector.restarts = lambda: 1
    assert _stops(collector) == ([(1010, 1015)], [])


# Windows


CHAIN = Topology.chain("read", "split", "out")


def _window(start: float, end: float, k: dict[str, int], **more: Any) -> ObservedWindow:
    return ObservedWindow(
        start, end, Deployment(k), "pipelined", {"read": 0.0}, {"read": 0.0}, more.pop("gaps", ()), {}, **more
    )


def test_downtime_and_commits_are_parts_of_the_window() -> None:
    window = _window(10, 20, CHAIN.uniform(), gaps=((8.0, 11.0), (15.0, 15.5)), commits=((12.0, 12.25), (19.0, 23.0)))
    got = snapshot(CHAIN, CHAIN.order, window, Totals(), Totals())
    assert (got.downtime_s, got.commit_s) == (1.5, 1.25)


class Flow:
    """Totals of a chain read -> split -> out that a script fills; the newest token's sums are kept apart."""

    def __init__(self, topology: Topology = CHAIN) -> None:
        self.topology, self.index = topology, {name: i for i, name in enumerate(topology.order)}
        self.whole: dict[int, Counter[str]] = {i: Counter() for i in self.index.values()}
        self.epoch: dict[int, Counter[str]] = {i: Counter() for i in self.index.values()}
        self.shares = SourceShares(topology, self.index, Totals())

    def did(self, name: str, done: float, **sent: float) -> None:
        counts = {"done": done, "busy": 0.1} | {f"edge {self.index[v]}": n for v, n in sent.items()}
        for sums in (self.whole, self.epoch):
            sums[self.index[name]].update(counts)

    def totals(self) -> Totals:
        copies = ({i: Counter(c) for i, c in sums.items()} for sums in (self.whole, self.epoch))
        return Totals(*copies)

    def begin_epoch(self) -> None:
        self.epoch = {i: Counter() for i in self.index.values()}

    def window(self, before: Totals, seconds: float = 1.0) -> float:
        window = ObservedWindow(
            0, seconds, Deployment(self.topology.uniform()), "pipelined",
            dict.fromkeys(self.topology.sources, 0.0), dict.fromkeys(self.topology.sources, 0.0), (), {},
        )  # fmt: skip
        return snapshot(self.topology, self.topology.order, window, before, self.totals(), self.shares).throughput


def test_throughput_is_true_from_the_first_window_after_a_selectivity_has_changed() -> None:
    """An hour at 1,000/s with ten words per line, then 1,500/s with one: the run's shares would say far less."""
    flow = Flow()
    flow.did("read", 3_600_000, split=3_600_000)
    flow.did("split", 3_600_000, out=36_000_000)
    flow.did("out", 36_000_000)
    before = Totals()
    assert flow.window(before) == 3_600_000
    for _ in range(3):
        before = flow.totals()
        flow.did("read", 1500, split=1500)
        flow.did("split", 1500, out=1500)
        flow.did("out", 1500)
        assert flow.window(before) == pytest.approx(1500)


def test_records_under_way_carry_the_share_with_which_they_were_sent() -> None:
    flow, before = Flow(), Totals()
    flow.did("read", 100, split=100)
    flow.did("split", 100, out=1000)
    flow.did("out", 400)  # 600 wait: 60 lines
    assert flow.window(before) == pytest.approx(40)
    before = flow.totals()
    flow.did("read", 50, split=50)
    flow.did("split", 50, out=50)  # from now on one word per line
    flow.did("out", 600)
    assert flow.window(before) == pytest.approx(60)
    before = flow.totals()
    flow.did("out", 50)
    assert flow.window(before) == pytest.approx(50)  # nothing but the sink did anything


def test_what_is_dropped_or_absorbed_ends_where_it_is() -> None:
    flow, before = Flow(), Totals()
    flow.did("read", 100, split=60)  # a filter: 100 source records are behind 60
    flow.did("split", 60)  # collects, and sends nothing in this window
    assert flow.window(before) == 100
    before = flow.totals()
    flow.did("read", 100, split=60)
    flow.did("split", 60, out=2)
    flow.did("out", 2)
    assert flow.window(before) == pytest.approx(100)


def test_what_a_failed_try_left_is_not_counted_as_under_way_for_ever() -> None:
    flow, before = Flow(), Totals()
    flow.did("read", 100, split=100)
    flow.did("split", 40, out=40)
    flow.did("out", 40)
    assert flow.window(before) == 40  # 60 are lost when the try fails
    before = flow.totals()
    flow.begin_epoch()
    flow.did("read", 100, split=100)  # all again
    flow.did("split", 100, out=500)  # five for one
    flow.did("out", 500)
    assert flow.window(before) == pytest.approx(100)


@given(st.data())
def test_every_source_record_ends_once_in_whatever_windows_it_is_under_way(data: st.DataObject) -> None:
    """A diamond with random selectivities that change in each window, filters and waits included."""
    topology = Topology(("s", "l", "r", "j"), (("s", "l"), ("s", "r"), ("l", "j"), ("r", "j")))
    flow, waiting, read, ended = Flow(topology), Counter[str](), 0, 0.0
    few = st.integers(0, 20)
    for _ in range(data.draw(st.integers(1, 8))):
        before = flow.totals()
        taken = data.draw(few)
        read += taken
        sent = {"l": data.draw(few), "r": data.draw(few)} if taken else {"l": 0, "r": 0}
        flow.did("s", taken, **sent)
        waiting.update(sent)
        for name in ("l", "r", "j"):
            done = data.draw(st.integers(0, waiting[name]))
            out = data.draw(few) if done and name != "j" else 0
            flow.did(name, done, **({"j": out} if name != "j" else {}))
            waiting[name] -= done
            waiting["j"] += out
        ended += flow.window(before)
        assert ended <= read + 1e-6
    before = flow.totals()
    for name in ("l", "r", "j"):  # all that waits is processed
        out = data.draw(few) if waiting[name] and name != "j" else 0
        flow.did(name, waiting[name], **({"j": out} if name != "j" else {}))
        waiting["j"] += out
    assert ended + flow.window(before) == pytest.approx(read)


# Instances


def test_each_instance_is_measured_and_skew_is_seen(collector: Collector, time: Time) -> None:
    """A hot key: instance 1 gets nine of ten records, is busy all the time, and records wait for it alone."""
    read = Task(collector, time, 0, k=[1, 2])
    count = [Task(collector, time, 1, i, k=[1, 2]) for i in range(2)]
    before = collector.totals()
    count[0].meter.turn(BUSY)
    count[1].meter.turn(BUSY)
    time.seconds += 1.0
    count[0].meter.turn(WAIT)
    time.seconds += 9.0
    read.meter.done = 1000
    read.sends(to1=(1000, Counter({0: 100, 1: 900})))
    count[0].meter.done, count[1].meter.done = 100, 500
    for task in (read, *count):
        task.send()
    chain = Topology.chain("read", "count")
    got = snapshot(
        chain, chain.order, _window(0, 10, {"read": 1, "count": 2}), before, collector.totals()
    ).operators  # fmt: skip
    cold, hot = got["count"].instances or ()
    assert (cold.processing_rate, cold.utilisation, cold.backlog, cold.cpu) == (10, pytest.approx(0.1), 0, 0.5)
    assert (hot.processing_rate, hot.utilisation, hot.backlog, hot.cpu) == (50, 1.0, 400, 0.5)
    assert got["count"].skew == pytest.approx(1.0 / 0.55)
    assert got["count"].backlog == 400
    (source,) = got["read"].instances or ()
    assert (source.processing_rate, source.backlog) == (100, None)


def test_a_task_is_silent_if_others_are_not(collector: Collector, time: Time) -> None:
    tasks = [Task(collector, time, operator, 0) for operator in range(3)]
    for task in tasks:
        task.send()
    tasks[0].send(final=True)
    time.seconds += 10
    assert collector.silent(5) == []  # no task sends: the driver itself may have been paused
    tasks[2].send()
    (found,) = collector.silent(5)  # one has ended, one is silent, one has just sent a reading
    assert (found.operator, found.instance, found.seconds, found.pid) == (1, 0, 10, os.getpid())
    tasks[1].send()
    assert collector.silent(5) == []


def test_a_task_that_never_begins_may_be_in_any_process_of_the_epoch_before(collector: Collector, time: Time) -> None:
    old = [Task(collector, time, i, 0, token="0-a", pid=100 + i, k=[1, 1, 1]) for i in range(3)]
    for task in old:
        task.meter._about["pid"] = 100 + task.meter._about["operator"]
        task.send(final=True)
    time.seconds += 1
    for i in range(2):
        task = Task(collector, time, i, 0, token="1-b", epoch=1, k=[1, 1, 1])
        task.meter._about["pid"] = 100 + i
        task.send()
        time.seconds += 0 if i == 0 else 10
    assert collector.silent(5) == []  # no other task has sent one
    task.send()
    found = {(s.operator, s.pid, s.certain) for s in collector.silent(5)}
    assert found == {(0, 100, True), (2, 102, False)}
