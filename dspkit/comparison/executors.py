"""Executors of runs: this process, a pool of processes, or Spark. Rows are yielded as they complete, with their index.

All three call the same function on the same `ComparisonRun`, so that rows are identical, bit for bit, on any executor
and in any order. docs/decisions/libraries.md explains why the pool is our own.
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

from ..core import BackendError
from ..core.validation import whole
from .cases import error_text
from .runs import KEYS, ComparisonRun

Row = dict[str, Any]
TRIES = 4  # attempts of a run whose worker is lost; half as many of a chunk
_CHUNK = 24  # runs per Spark task: a new worker takes some seconds to import its modules


def attempt(run: ComparisonRun) -> Row:
    """Return the row of a run; if it fails, a row with the error."""
    try:
        return run.row()
    except Exception as error:
        return _failed(run, error_text(error))


def _failed(run: ComparisonRun, why: str) -> Row:
    return {**dict(zip(KEYS, (*run.names, run.seed), strict=True)), "error": why}


def in_this_process(runs: Mapping[int, ComparisonRun]) -> Iterator[tuple[int, Row]]:
    """Yield the rows of all runs, executed one after the other in this process."""
    for i, run in runs.items():
        yield i, attempt(run)


class _Worker(NamedTuple):
    process: Any
    pipe: Connection


def in_processes(runs: Mapping[int, ComparisonRun], processes: int) -> Iterator[tuple[int, Row]]:
    """Yield the rows of all runs, executed in child processes, which end with this one.

    A process that dies fails only the run that it was executing.
    """
    _warm()
    method = "fork" if "fork" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(method)
    waiting = deque(runs)
    workers: list[_Worker] = []
    running: dict[_Worker, int] = {}

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
            running[worker] = waiting.popleft()
            with contextlib.suppress(OSError):  # if it has died, `wait` reports it next
                worker.pipe.send(running[worker])

    try:
        for _ in range(min(processes, len(runs))):
            give(start())
        while running:
            ready = wait([w.pipe for w in running])
            for worker in [w for w in running if w.pipe in ready]:
                i = running.pop(worker)
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


def _serve(pipe: Connection, others: Sequence[Connection], runs: Mapping[int, ComparisonRun]) -> None:
    """Execute the runs whose indices are received, until the parent closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the comparison
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for other in others:  # inherited copies of the parent's ends, which would hide its end
        other.close()
    with contextlib.suppress(EOFError, OSError):
        while True:
            pipe.send(attempt(runs[pipe.recv()]))


def _warm() -> None:
    """Import and compile the code of all runs once: forked processes share it."""
    from ..core import Topology
    from ..simulator import Plant, Service, Simulator
    from ..workload import Constant

    with Simulator(Topology.chain("a", "b"), Plant({"a": Service(), "b": Service()}), Constant(100)) as sim:
        sim.observe()
        sim.deploy(sim.deployment.scaled({"b": 2}))
        sim.observe()


def over_spark(runs: Mapping[int, ComparisonRun], spark: Any) -> Iterator[tuple[int, Row]]:
    """Yield the rows of all runs, executed as Spark tasks; dspkit must be installed on the workers.

    Each chunk of runs is a Spark job of its own, so that after the loss of a worker only its chunk is repeated.
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
        with contextlib.suppress(Exception):  # a stopped Spark has nothing to cancel
            context.cancelJobGroup(group)


def _chunk(
    context: Any, runs: Mapping[int, ComparisonRun], chunk: list[int], over: threading.Event
) -> list[tuple[int, Row]]:
    """Return the rows of these runs; after the loss of a worker they are repeated, in the end one by one."""
    why = ""
    for _ in range(TRIES if len(chunk) == 1 else TRIES // 2):
        if over.is_set():
            break
        try:
            rows = context.parallelize([[runs[i] for i in chunk]], 1).map(_all).collect()[0]
            return list(zip(chunk, rows, strict=True))
        except Exception as error:
            lines = [line for line in error_text(error).splitlines() if line.strip()]
            why = next((line for line in reversed(lines) if re.match(r"[\w.]+(Error|Exception)\b", line)), lines[0])
    if len(chunk) > 1 and not over.is_set():
        return [pair for i in chunk for pair in _chunk(context, runs, [i], over)]
    return [(i, _failed(runs[i], f"no worker completed the run: {why}")) for i in chunk]


def _all(runs: Sequence[ComparisonRun]) -> list[Row]:
    return [attempt(run) for run in runs]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def checked(processes: Any) -> int:
    """Return the number of processes; 0 stands for this process."""
    return (
        available_cores() if processes is None else whole(processes, "processes", fix="pass 0 to run in this process")
    )
