"""Who plays the runs: this process, a few of its own, or a Spark. Rows come as they are ready, with their numbers.

All three call the same function on the same `Run`, so rows are the same bit for bit, whoever plays them and in whatever
order.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import re
import secrets
import signal
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from typing import Any, NamedTuple

from ..errors import BackendError, KnobError
from .question import said
from .runs import KEYS, Run

Row = dict[str, Any]
TRIES = 4  # of a run that was under way on a worker that was lost; of a chunk half as many
_CHUNK = 24  # runs that a task of Spark's plays: a fresh worker takes some seconds to load what it needs


def attempt(run: Run) -> Row:
    """Its row; where it fails, a row that says why."""
    try:
        return run.row()
    except Exception as error:
        return _failed(run, said(error))


def _failed(run: Run, why: str) -> Row:
    return {**dict(zip(KEYS, (*run.names, run.seed), strict=True)), "error": why}


def here(runs: Mapping[int, Run]) -> Iterator[tuple[int, Row]]:
    """One after the other in this process."""
    for i, run in runs.items():
        yield i, attempt(run)


class _Worker(NamedTuple):
    process: Any
    pipe: Connection


def in_processes(runs: Mapping[int, Run], processes: int) -> Iterator[tuple[int, Row]]:
    """In processes of this one's, which end with it however that ends. One that dies costs the run it was in."""
    _warm()
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    waiting = deque(runs)
    workers: list[_Worker] = []
    under_way: dict[_Worker, int] = {}

    def start() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(
            target=_serve, args=(theirs, [ours, *(w.pipe for w in workers)], runs), daemon=True, name="dspkit-run"
        )
        process.start()
        theirs.close()
        workers.append(_Worker(process, ours))
        return workers[-1]

    def give(worker: _Worker) -> None:
        if waiting:
            under_way[worker] = waiting.popleft()
            with contextlib.suppress(OSError):  # it died meanwhile: the next look finds it
                worker.pipe.send(under_way[worker])

    try:
        for _ in range(min(processes, len(runs))):
            give(start())
        while under_way:
            ready = wait([w.pipe for w in under_way])
            for worker in [w for w in under_way if w.pipe in ready]:
                i = under_way.pop(worker)
                try:
                    row = worker.pipe.recv()
                except (EOFError, OSError):
                    worker.process.join()
                    workers.remove(worker)
                    worker.pipe.close()
                    row = _failed(runs[i], f"its process ended with code {worker.process.exitcode}")
                    worker = start() if waiting else worker
                if worker in workers:
                    give(worker)
                yield i, row
    finally:
        for worker in workers:
            worker.process.terminate()
        for worker in workers:
            worker.process.join()
            worker.pipe.close()


def _serve(pipe: Connection, others: Sequence[Connection], runs: Mapping[int, Run]) -> None:
    """Play what numbers come; end when nobody is left who could send one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the one who asked for the sweep ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # copies of the parent's ends: while one is open, its loss does not show
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(attempt(runs[pipe.recv()]))


def _warm() -> None:
    """Load what every run needs, once: processes that are forked share it."""
    from ..core import Topology
    from ..plant import Plant, Service
    from ..simulator import Simulator
    from ..workload import Constant

    with Simulator(Topology.chain("a", "b"), Plant({"a": Service(), "b": Service()}), Constant(100)) as sim:
        sim.observe()
        sim.deploy(sim.deployment.scaled({"b": 2}))
        sim.observe()


def over_spark(runs: Mapping[int, Run], spark: Any) -> Iterator[tuple[int, Row]]:
    """As tasks of a SparkSession, whatever its master is; dspkit must be installed where they run.

    Each chunk of runs is a small job of its own, so that a worker that is lost costs what it was playing, which is
    played again, and nothing else.
    """
    try:
        context = spark.sparkContext
        slots = max(1, int(context.defaultParallelism))
    except Exception as error:
        raise BackendError(
            f"spark={spark!r}"[:80], expected="a SparkSession that runs and has a SparkContext", fix="not Spark Connect"
        ) from error
    size = max(1, min(_CHUNK, len(runs) // (4 * slots)))
    numbers = list(runs)
    chunks: queue.SimpleQueue[list[int]] = queue.SimpleQueue()
    for at in range(0, len(numbers), size):
        chunks.put(numbers[at : at + size])
    done: queue.SimpleQueue[list[tuple[int, Row]]] = queue.SimpleQueue()
    group, over = f"dspkit-compare-{secrets.token_hex(6)}", threading.Event()

    def submit() -> None:
        context.setJobGroup(group, "dspkit: comparison", True)
        while not over.is_set():
            try:
                chunk = chunks.get_nowait()
            except queue.Empty:
                return
            done.put(_chunk(context, runs, chunk, over))

    threads = [threading.Thread(target=submit, daemon=True, name=f"dspkit-compare-{n}") for n in range(slots)]
    for thread in threads:
        thread.start()
    try:
        left = len(numbers)
        while left:
            for i, row in done.get():
                left -= 1
                yield i, row
    finally:
        over.set()
        with contextlib.suppress(Exception):  # a Spark that is gone has nothing to cancel
            context.cancelJobGroup(group)


def _chunk(context: Any, runs: Mapping[int, Run], chunk: list[int], over: threading.Event) -> list[tuple[int, Row]]:
    """The rows of these runs; what a lost worker was playing is played again, in the end each by itself."""
    why = ""
    for _ in range(TRIES if len(chunk) == 1 else TRIES // 2):
        if over.is_set():
            break
        try:
            rows = context.parallelize([[runs[i] for i in chunk]], 1).map(_all).collect()[0]
            return list(zip(chunk, rows, strict=True))
        except Exception as error:
            lines = [line for line in said(error).splitlines() if line.strip()]
            why = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception)\b", line)), lines[0])
    if len(chunk) > 1 and not over.is_set():
        return [pair for i in chunk for pair in _chunk(context, runs, [i], over)]
    return [(i, _failed(runs[i], f"no worker could play it: {why}")) for i in chunk]


def _all(runs: Sequence[Run]) -> list[Row]:
    return [attempt(run) for run in runs]


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked(processes: Any) -> int:
    """How many processes to play in; 0 is this one."""
    count = cores() if processes is None else processes
    if isinstance(count, bool) or not isinstance(count, int) or count < 0:
        raise KnobError(f"processes={processes!r}", expected="a number from 0 up", fix="0 plays in this process")
    return count
