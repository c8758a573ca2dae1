"""The live side of an application: its functions, its input, and its answers computed a second time in plain Python.

`Live` holds them, and `rehearse` and `audit` check functions without and with Spark. `Service` and `TimedFunction` add
a configurable service time to the work that a function does anyway. `draw` and `share` give random numbers that are a
function of a record's number, so that an input is the same however often it is read.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ..core import ArgumentError, Topology
from ..core.typing import Array
from ..workload import Jump, Workload

if TYPE_CHECKING:
    import pyarrow as pa

    from ..spark import Function
    from .app import App

    Make = Callable[[Array, Array], pa.RecordBatch]


_SHORTEST_S = 5e-4  # a sleep takes some ten microseconds too long, so short ones are combined


@dataclass
class Service:
    """A service time of `micros` per record: waiting, as for an external server, or work on a core.

    Waiting scales with instances beyond the cores of a machine, work on cores does not.

    Parameters
    ----------
    micros : float
        Service time per record, in microseconds.
    cpu : float
        Share of that time that is work on a core, from 0 to 1; True is all of it.

    Examples
    --------
    >>> Service(200, cpu=0.5).pay(10)  # a millisecond on a core, and one of waiting
    """

    micros: float
    cpu: float = 0.0
    _owed: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.micros < 1e9:
            raise ArgumentError(f"micros={self.micros!r}", expected="a time of at least 0", fix="as in Service(200)")
        if not 0 <= self.cpu <= 1:
            raise ArgumentError(f"cpu={self.cpu!r}", expected="a share from 0 to 1", fix="as in Service(200, cpu=0.5)")

    def pay(self, records: int) -> None:
        """Spend the time of that many records; a time too short to be spent exactly is carried over."""
        self._owed += records * self.micros * 1e-6
        if self._owed < _SHORTEST_S:
            return
        work, self._owed = self._owed * self.cpu, self._owed * (1 - self.cpu)
        end = time.thread_time() + work
        while time.thread_time() < end:
            pass
        if self._owed:
            began = time.perf_counter()
            time.sleep(self._owed)
            self._owed -= time.perf_counter() - began


def draw(ids: Array, salt: int, below: int) -> Array:
    """Return a whole number from 0 to below `below` per id; another `salt` gives others (the last steps of splitmix64).

    >>> import numpy as np
    >>> draw(np.arange(5), 1, 10).tolist() == draw(np.arange(5), 1, 10).tolist()
    True
    """
    import numpy as np

    x = (ids.astype(np.uint64) + np.uint64(salt * 0x632BE59BD9B4E019 % 2**64)) * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    drawn: Array = ((x ^ (x >> np.uint64(31))) % np.uint64(below)).astype(np.int64)
    return drawn


def share(ids: Array, salt: int) -> Array:
    """Return a real number from 0 to below 1 per id."""
    return draw(ids, salt, 1 << 53) / (1 << 53)


SLOTS = 64  # of a job on one machine: all instances of all operators at once
MOST = 16  # most instances of an operator: as many as a trace has partitions
KEPT = 360  # windows of ten seconds that are kept: one hour
STEP_S = 40.0  # time of the step of the live load
Answers = dict[str, dict[Any, Any]]  # by keyed operator: its expected state, by key


@dataclass(frozen=True)
class Live:
    """The live side of an application: the functions of its operators, their input, and the expected results.

    Parameters
    ----------
    functions : mapping or callable
        The function of each operator, made with `spark.arrow`, `spark.keyed` and the like; or a callable that returns
        them, so that no heavy library is imported before a job starts. A source without a function forwards its log.
    make : callable or mapping
        Makes records from their numbers and the seconds at which they are created, as an Arrow batch; by source if
        there are several.
    schema : str
        The columns of these records, as in "line string".
    oracle : callable
        Computes the expected state of each keyed operator from all records, one by one, in plain Python.
    micros : mapping
        Service time per record by operator, in microseconds, in addition to the work itself.
    rates : tuple or mapping
        Records/s before and after the step of the live load, which two cores sustain; by source if there are several.
    records : str
        The plural noun for the records.
    target_latency_s : float
        The latency to aim at.
    cpu : float or mapping
        Share of the service time that is work on a core instead of waiting; by operator if they differ.
    note : str
        One sentence about how the live side was derived, if it was.
    final : callable, optional
        For an app by event time: the time, in seconds, from which the state of a key is there and final.

    Examples
    --------
    >>> from dspkit import apps
    >>> live = apps.get("word_count")().live
    >>> live.schema, live.records, live.rates
    ('line string', 'lines', (600, 2400))
    """

    functions: Mapping[str, Function] | Callable[[], Mapping[str, Function]]
    make: Make | Mapping[str, Make]
    schema: str
    oracle: Callable[[Iterable[dict[str, Any]]], Answers]
    micros: Mapping[str, float]
    rates: tuple[float, float] | Mapping[str, tuple[float, float]]
    records: str = "records"
    target_latency_s: float = 0.5
    cpu: float | Mapping[str, float] = 0.0
    note: str = ""
    final: Callable[[Any], float] | None = None

    def operators(self) -> dict[str, Function]:
        """Return the function of each operator, without its service time.

        Examples
        --------
        >>> from dspkit import apps
        >>> sorted(apps.word_count().live.operators())
        ['count', 'flat_map', 'sink']
        """
        return dict(self.functions() if callable(self.functions) else self.functions)

    def load(self, at_s: float = STEP_S) -> Workload | dict[str, Workload]:
        """Return the live load, which steps up once; by source if there are several.

        Parameters
        ----------
        at_s : float
            Time of the step.

        Examples
        --------
        >>> from dspkit import apps
        >>> apps.word_count().live.load(at_s=10)
        Jump(before_per_s=600.0, after_per_s=2400.0, at_s=10.0)
        """
        if isinstance(self.rates, Mapping):
            return {name: Jump(*rates, at_s) for name, rates in self.rates.items()}
        return Jump(*self.rates, at_s)

    def maker(self, source: str) -> Make:
        """Return the function that makes the records of a source.

        Parameters
        ----------
        source : str
            Its name.

        Examples
        --------
        >>> import numpy as np
        >>> from dspkit import apps
        >>> apps.star().synthetic().live.maker("right")(np.array([7]), np.array([0.1])).to_pylist()
        [{'id': 7, 'source': 1}]
        """
        return self.make[source] if isinstance(self.make, Mapping) else self.make

    def timed(
        self, micros: Mapping[str, float] | float | None = None, cpu: Mapping[str, float] | float | None = None
    ) -> dict[str, Function]:
        """Return the functions, each with its service time.

        Parameters
        ----------
        micros : float or mapping, optional
            Service times in place of the app's own: by operator, or one number for all.
        cpu : float or mapping, optional
            Shares of work on a core in place of the app's own: by operator, or one number for all.

        Examples
        --------
        >>> from dspkit import apps
        >>> timed = apps.word_count().live.timed({"count": 20}, cpu=1.0)
        >>> timed["flat_map"].run.micros, timed["count"].run.micros, timed["count"].run.cpu
        (1000.0, 20, 1.0)
        """
        functions = self.operators()
        times = _by_operator("service times", functions, self.micros, micros)
        shares = _by_operator("shares of a core", functions, self.cpu, cpu)
        timed = {n: TimedFunction(f.run, times.get(n, 0.0), shares.get(n, 0.0)) for n, f in functions.items()}
        return {n: replace(f, run=timed[n]) for n, f in functions.items()}


def _by_operator(
    what: str, functions: Mapping[str, Any], own: Mapping[str, float] | float, given: Mapping[str, float] | float | None
) -> dict[str, float]:
    """Return numbers by operator: the given ones, and otherwise the app's own."""
    numbers = dict(own) if isinstance(own, Mapping) else dict.fromkeys(functions, own)
    if given is None:
        return numbers
    if not isinstance(given, Mapping):
        return dict.fromkeys(functions, given)
    if unknown := sorted(set(given) - set(functions)):
        raise ArgumentError(f"{what} of {unknown}", expected=f"some of {', '.join(functions)}", fix="check the names")
    return numbers | dict(given)


@dataclass
class TimedFunction:
    """A function that spends a service time on every record before it processes it."""

    run: Callable[..., Iterator[Any]]
    micros: float
    cpu: float = 0.0

    def __post_init__(self) -> None:
        Service(self.micros, self.cpu)  # raises an error for invalid times

    def __call__(self, batches: Iterator[Any], *known: dict[Any, Any]) -> Iterator[Any]:
        yield from self.run(self._pay(batches), *known)

    def _pay(self, batches: Iterator[Any]) -> Iterator[Any]:
        service = Service(self.micros, self.cpu)
        for batch in batches:
            service.pay(batch.num_rows)
            yield batch


def bounded(topology: Topology, functions: Mapping[str, Function]) -> Topology:
    """Return the graph as it runs live: at most as many instances as fit one machine, stateful as its functions are.

    Examples
    --------
    >>> bounded(Topology.chain("a", "b"), {})["a"].max_parallelism
    16
    """
    most = max(1, min(MOST, SLOTS // len(topology.operators)))
    operators = tuple(
        replace(
            o,
            max_parallelism=max(o.min_parallelism, min(o.max_parallelism, most)),
            stateful=o.name in functions and functions[o.name].stateful,
        )
        for o in topology.operators
    )
    return Topology(operators, topology.edges)


def forget(known: dict[int, Any], window: Callable[[int], int], kept: int, newest: int | None = None) -> None:
    """Remove the state of all windows but the newest; called at the beginning of an epoch, so that state does not grow.

    Parameters
    ----------
    known : dict
        The state, by key.
    window : callable
        Returns the number of a key's window.
    kept : int
        How many windows to keep.
    newest : int, optional
        The newest window; that of the keys if left out.

    Examples
    --------
    >>> known = {1: "a", 2: "b", 3: "c"}
    >>> forget(known, lambda key: key, 2)
    >>> known
    {2: 'b', 3: 'c'}
    """
    newest = max(map(window, known), default=0) if newest is None else newest
    for key in [key for key in known if window(key) <= newest - kept]:
        del known[key]


class Rehearsal(NamedTuple):
    """The result of a run without Spark.

    Parameters
    ----------
    known : dict
        The state of each keyed operator, by key.
    records : dict
        The number of input records of each operator.

    Examples
    --------
    >>> Rehearsal({"count": {"it": 3}}, {"flat_map": 1, "count": 3}).records["count"]
    3
    """

    known: Answers
    records: dict[str, int]


def rehearse(
    app: App, batches: Iterable[pa.RecordBatch] | Mapping[str, Iterable[pa.RecordBatch]], instances: int = 1
) -> Rehearsal:
    """Run the app's functions in this process, without Spark and without service times.

    Each operator processes all its input before the next one begins, on its instances in turn; at the end all windows
    are over.

    Parameters
    ----------
    app : App
        The application.
    batches : iterable or mapping
        The input, as its live side makes it; by source if there are several.
    instances : int
        Instances of each operator.

    Examples
    --------
    >>> import numpy as np
    >>> from dspkit import apps
    >>> app = apps.word_count()
    >>> found = rehearse(app, [app.live.make(np.arange(100), np.arange(100) / 10)])
    >>> found.records["flat_map"], found.records["count"], sum(found.known["count"].values())
    (100, 1000, 1000)
    """
    import pyarrow as pa

    from ..spark.dataflow.exchange import Edge
    from ..spark.dataflow.watermarks import with_timers
    from ..spark.dead_letters import DeadLetters, own_copy

    live = app.as_live().live
    assert live is not None
    topology, functions = app.topology, live.operators()
    inputs: dict[str, list[list[Any]]] = {n: [[] for _ in range(instances)] for n in topology.order}
    logs = batches if isinstance(batches, Mapping) else {topology.sources[0]: batches}
    for source, log in logs.items():
        for i, batch in enumerate(log):
            inputs[source][i % instances].append(batch)
    known: Answers = {}
    records: dict[str, int] = {}
    for name in topology.order:
        function = functions.get(name)
        apart = (function.late, function.on_error) if function is not None else ()
        receivers = [each for each in topology.downstream(name) if each not in apart]
        edges = {n: Edge(0, 1, pa.schema([]), functions[n].key, instances) for n in receivers}
        records[name] = sum(batch.num_rows for given in inputs[name] for batch in given)
        for given in inputs[name]:
            if function is None:
                made: Iterable[Any] = given
            elif function.stateful:
                mine: dict[Any, Any] = {}
                made = [own_copy(out) for out in function.run(with_timers(name, function, given, mine), mine) or ()]
                known.setdefault(name, {}).update(mine)
            else:
                made = map(own_copy, function.run(iter(given)) or ())
            for out in made:
                if isinstance(out, DeadLetters):
                    raise out.errors[0]
                only, batch = out if isinstance(out, tuple) else (None, out)
                batch = batch.replace_schema_metadata({"from": name})
                for receiver in receivers if only is None else (only,):
                    for to, part in edges[receiver].parts(batch):
                        inputs[receiver][to].append(part)
        inputs[name] = []
    return Rehearsal(known, records)


def audit(app: App, load: Any, checkpoint: str | Path) -> tuple[int, Answers, Answers]:
    """Return, after a job, the number of records that it read, the state of its operators, and the expected state.

    The expected state is computed in plain Python.

    Parameters
    ----------
    app : App
        The application that ran.
    load : Workload or mapping
        The load that it ran under.
    checkpoint : str or Path
        The job's checkpoint.

    Examples
    --------
    >>> records, known, answers = audit(app, load, "checkpoint")  # doctest: +SKIP
    """
    import numpy as np

    from ..spark.dataflow.checkpoint import Checkpoint

    app, kept = app.as_live(), Checkpoint(checkpoint)
    ids = {
        source: [np.arange(upto) * len(read) + p for p, upto in enumerate(read)]
        for source, read in zip(app.topology.sources, kept.offsets(), strict=True)
    }
    assert app.live is not None
    want = app.live.oracle(app.rows(load, {source: np.sort(np.concatenate(each)) for source, each in ids.items()}))
    if (final := app.live.final) is not None:
        now = _watermark_s(app, load, ids)
        want = {name: {key: value for key, value in each.items() if final(key) <= now} for name, each in want.items()}
    got: Answers = {}
    for operator in want:
        table = kept.state(operator)
        *keys, values = (column.to_pylist() for column in table.columns)
        got[operator] = dict(zip(keys[0] if len(keys) == 1 else zip(*keys, strict=True), values, strict=True))
    return sum(len(each) for parts in ids.values() for each in parts), got, want


def _watermark_s(app: App, load: Any, ids: Mapping[str, list[Array]]) -> float:
    """Return the watermark behind the records of these numbers, by source and partition."""
    assert app.live is not None
    logs, found = app.source(load), []
    for source, parts in ids.items():
        log = logs[source] if isinstance(logs, Mapping) else logs
        time = app.live.operators()[source].event_time
        assert time is not None
        for each in parts:
            if not len(each):
                return -math.inf
            event_s = log.event_s(each)
            newest = time.micros(app.live.maker(source)(each, event_s), (event_s * 1e6).astype("int64")).max()
            found.append(int(newest) / 1e6 - time.delay_s)
    return min(found)
