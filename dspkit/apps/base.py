"""What the applications of this folder have in common: a job of each, its input, and its answers worked out twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core import Operator, Topology
from ..errors import KnobError
from ..workload import Jump, Workload
from .service import Service

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

    from ..spark import Function, SparkJob, TraceSource

    Array = np.ndarray[Any, np.dtype[Any]]
MOST = 10  # instances of an operator: six of them fit into the 64 slots of a small machine
KEPT = 360  # windows of ten seconds that are remembered: an hour's
Answers = dict[str, dict[Any, Any]]  # what each keyed operator must know, by key


@dataclass(frozen=True)
class LiveApp:
    """An application for live Spark: its graph, what its operators do, its input, and what must come out."""

    name: str
    topology: Topology
    functions: Mapping[str, Function]
    make: Callable[[Array, Array], pa.RecordBatch]  # records by their numbers and the seconds they come about at
    schema: str  # of what `make` makes
    oracle: Callable[[Iterable[dict[str, Any]]], Answers]  # the answers, worked out record by record
    micros: Mapping[str, float]  # service time of a record by operator, besides the work itself
    rates: tuple[float, float]  # records/s before and after the step of the demo's load
    records: str = "records"  # what they are called
    target_latency_s: float = 0.5

    @property
    def load(self) -> Workload:
        """A load that steps up after forty seconds."""
        return Jump(*self.rates, 40.0)

    def timed(self, micros: Mapping[str, float] | float | None = None, cpu: bool = False) -> dict[str, Function]:
        """The functions, each with its service time: the app's own, or `micros`, of one or of all operators."""
        times = dict(self.micros)
        if isinstance(micros, Mapping):
            if unknown := sorted(set(micros) - set(self.functions)):
                known = ", ".join(self.functions)
                raise KnobError(f"service times of {unknown}", expected=f"some of {known}", fix="check the names")
            times |= micros
        elif micros is not None:
            times = dict.fromkeys(self.functions, micros)
        for time in times.values():
            Service(time, cpu)  # refuses what is no time
        return {n: replace(f, run=Paid(f.run, times.get(n, 0.0), cpu)) for n, f in self.functions.items()}

    def source(self, load: Workload, **settings: Any) -> TraceSource:
        """The app's input as a log that fills under `load`; the same records each time."""
        from ..spark import TraceSource

        return TraceSource(load, self.make, self.schema, **settings)

    def job(
        self, load: Workload, *, micros: Mapping[str, float] | float | None = None, cpu: bool = False, **settings: Any
    ) -> SparkJob:
        """The app as a live job; `cpu` makes its service time work on a core instead of waiting."""
        from ..spark import SparkJob

        return SparkJob(self.topology, self.timed(micros, cpu), self.source(load), **settings)

    def rows(self, load: Workload, ids: Array) -> list[dict[str, Any]]:
        """The records with these numbers under `load`."""
        source = self.source(load)
        rows: list[dict[str, Any]] = self.make(ids, source.event_s(ids)).to_pylist()
        return rows


@dataclass
class Paid:
    """A function whose every record costs service time before it is worked on."""

    run: Callable[..., Iterator[Any]]
    micros: float
    cpu: bool = False

    def __call__(self, batches: Iterator[Any], *known: dict[Any, Any]) -> Iterator[Any]:
        yield from self.run(self._pay(batches), *known)

    def _pay(self, batches: Iterator[Any]) -> Iterator[Any]:
        service = Service(self.micros, self.cpu)
        for batch in batches:
            service.pay(batch.num_rows)
            yield batch


def chain(*names: str, stateful: Sequence[str] = ()) -> Topology:
    """One operator after the other, some of which keep state."""
    operators = tuple(Operator(name, MOST, stateful=name in stateful) for name in names)
    return Topology(operators, tuple(zip(names, names[1:], strict=False)))


def forget(known: dict[int, Any], window: Callable[[int], int], kept: int) -> None:
    """Drop what is known of all windows but the newest: called as an epoch begins, so that state does not grow."""
    newest = max(map(window, known), default=0)
    for key in [key for key in known if window(key) <= newest - kept]:
        del known[key]


def rehearse(app: LiveApp, batches: Iterable[pa.RecordBatch], instances: int = 1) -> Answers:
    """Run the app's functions here, without Spark: what each keyed operator knows in the end.

    Each operator works through all its input before the next one begins, on so many instances in turn.
    """
    import pyarrow as pa

    from ..spark.frames import Edge

    inputs: dict[str, list[list[Any]]] = {n: [[] for _ in range(instances)] for n in app.topology.order}
    for i, batch in enumerate(batches):
        inputs[app.topology.sources[0]][i % instances].append(batch)
    known: Answers = {}
    for name in app.topology.order:
        function = app.functions.get(name)
        receivers = app.topology.downstream(name)
        edges = {n: Edge(0, 1, pa.schema([]), app.functions[n].key, instances) for n in receivers}
        for given in inputs[name]:
            if function is None:
                made: Iterable[Any] = given
            elif function.stateful:
                mine: dict[Any, Any] = {}
                made = list(function.run(iter(given), mine) or ())
                known.setdefault(name, {}).update(mine)
            else:
                made = function.run(iter(given)) or ()
            for out in made:
                only, batch = out if isinstance(out, tuple) else (None, out)
                batch = batch.replace_schema_metadata({"from": name})
                for receiver in receivers if only is None else (only,):
                    for to, part in edges[receiver].parts(batch):
                        inputs[receiver][to].append(part)
        inputs[name] = []
    return known


def audit(app: LiveApp, load: Workload, checkpoint: str | Path) -> tuple[int, Answers, Answers]:
    """After a job: how many records it took, what its operators know, and what they must know by plain Python."""
    import numpy as np

    from ..spark.checkpoint import Checkpoint

    kept = Checkpoint(checkpoint)
    read = kept.offsets()[0]
    ids = np.sort(np.concatenate([np.arange(upto) * len(read) + p for p, upto in enumerate(read)]))
    want, got = app.oracle(app.rows(load, ids)), {}
    for operator in want:
        table = kept.state(operator)
        got[operator] = dict(zip(table.column("key").to_pylist(), table.column("value").to_pylist(), strict=True))
    return len(ids), got, want
