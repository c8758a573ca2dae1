"""Synthetic operators: the costs of a simulated application as functions that Spark runs.

Each record has a number. An operator spends its service time on it, sends records to each receiver according to its
selectivity, and keeps state of the size that the plant gives it. Record n of an edge of selectivity s becomes the
records from floor(n s) up to floor((n + 1) s), whichever instance processes it, and however often it is repeated. So
records are numbered without gaps on every edge, and N of them become floor(N s).

| of the plant | live |
|---|---|
| `seconds_per_record` | service time, divided by the scale |
| `io_share` | the share of it that is waiting |
| `selectivity` | records sent to each receiver, exactly |
| `state_bytes` | keyed state of that size, at most 1 MB; sinks count by key at least, so that a run can be audited |
| load | a step from its first rate to its highest, multiplied by the scale |

Not live: contention, coherency, variation of service times, external rate limits, links, speeds of nodes, dropping
queues. State of sources is not live either.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..core import ArgumentError, Topology
from ..core.typing import Array
from ..simulator import Plant, Service
from ..workload import Workload
from .live import MOST, SLOTS, Answers, Live

if TYPE_CHECKING:
    from ..spark import Function


RECORDS_PER_S = 3000.0  # of all operators together, which two cores sustain besides the service times
CORES = 0.5  # cores for service times; the rest of the two is for the engine
SPARE = 0.9  # highest utilisation of the instances that fit
HORIZON_S = 3600.0  # time in which the highest rate of a load is determined
KEYS, STATE_BYTES = 1000, 1e6  # upper bounds per operator
SINK_KEYS = 100  # keys of a sink without state of its own
LOG = "id int64, source int64"
SENT = "id int64, key int64"


def synthetic(
    name: str, topology: Topology, plant: Plant, load: Workload | Mapping[str, Workload], scale: float | None = None
) -> Live:
    """Return the live side of a simulated application, scaled down to two cores.

    Parameters
    ----------
    name : str
        The application's name, for the note.
    topology : Topology
        Its graph.
    plant : Plant
        Its simulated cluster with the costs.
    load : Workload or mapping
        Its load on the simulator.
    scale : float, optional
        Live records/s per simulated one; if left out, such that all operators together have `RECORDS_PER_S`.

    Examples
    --------
    >>> from dspkit import apps
    >>> star = apps.star()
    >>> synthetic("star", star.topology, star.plant, star.workload, scale=0.5).rates["left"]
    (200.0, 1300.0)
    """
    if scale is not None and not 0 < scale < math.inf:
        raise ArgumentError(f"scale={scale!r}", expected="a number above 0", fix="leave it out for two cores")
    services = plant.services
    first, peak = _rates(topology, load)
    flow = _flow(topology, services, peak)
    scale = min(1.0, RECORDS_PER_S / max(1e-9, sum(flow.values()))) if scale is None else float(scale)
    need = {n: flow[n] * services[n].seconds_per_record for n in topology.order}  # instances that the peak needs
    most = max(1, min(MOST, SLOTS // len(topology.operators)))
    fits = min(1.0, *(SPARE * min(o.max_parallelism, most) / max(1e-9, need[o.name]) for o in topology.operators))
    work = {n: 1 - services[n].io_share for n in topology.order}
    burn = min(1.0, CORES / max(1e-9, fits * sum(need[n] * work[n] for n in need)))
    sizes = {n: s for n in topology.order if (s := _size(topology, services[n], n))}
    toward = {n: {to: services[n].toward(to) for to in topology.downstream(n)} for n in topology.order}
    rates = {n: (first[n] * scale * fits, peak[n] * scale * fits) for n in topology.sources}
    return Live(
        SyntheticFunctions(toward, sizes),
        {n: Numbered(i) for i, n in enumerate(topology.sources)},
        LOG,
        Expected(topology.sources, toward, sizes),
        {n: 1e6 * services[n].seconds_per_record / scale for n in topology.order},
        rates if len(rates) > 1 else rates[topology.sources[0]],
        cpu={n: burn * work[n] for n in topology.order},
        note=_note(name, scale, fits, burn),
    )


def _note(name: str, scale: float, fits: float, burn: float) -> str:
    parts = [f"Synthetic {name}: {scale:.3g} times the simulated rates, {1 / scale:.3g} times the service times"]
    if fits < 1:
        parts.append(f"the load is reduced to {fits:.0%} of that, which the instances sustain")
    if burn < 1:
        parts.append(f"{burn:.0%} of the work is done on cores, the rest is waiting")
    return "; ".join(parts)


def _rates(topology: Topology, load: Workload | Mapping[str, Workload]) -> tuple[dict[str, float], dict[str, float]]:
    """Return the first and the highest rate of each source."""
    import numpy as np

    t, names = np.arange(0.0, HORIZON_S), topology.sources
    each = {n: load.rates(t) / len(names) for n in names} if isinstance(load, Workload) else {}
    each = each or {n: load[n].rates(t) for n in names}  # type: ignore[index]
    return {n: float(r[0]) for n, r in each.items()}, {n: float(r.max()) for n, r in each.items()}


def _flow(topology: Topology, services: Mapping[str, Service], rates: Mapping[str, float]) -> dict[str, float]:
    """Return the records/s of each operator at these rates of the sources."""
    flow = dict.fromkeys(topology.order, 0.0) | dict(rates)
    for name in topology.order:
        for receiver in topology.downstream(name):
            flow[receiver] += flow[name] * services[name].toward(receiver)
    return flow


def _size(topology: Topology, service: Service, name: str) -> tuple[int, int] | None:
    """Return the number of keys of an operator's state and the bytes per key; None without state."""
    if not topology.upstream(name):
        return None
    if service.state_bytes > 0:
        size = min(service.state_bytes, STATE_BYTES)
        keys = max(1, min(KEYS, int(size // 100)))
        return keys, int(size // keys)
    if topology[name].stateful or not topology.downstream(name):
        return SINK_KEYS, 0
    return None


@dataclass(frozen=True)
class Numbered:
    """Records of a source's log: their numbers, and which source it is."""

    source: int

    def __call__(self, ids: Array, event_s: Array) -> Any:
        import numpy as np
        import pyarrow as pa

        columns = [pa.array(np.asarray(ids, np.int64)), pa.array(np.full(len(ids), self.source, np.int64))]
        return pa.RecordBatch.from_arrays(columns, names=["id", "source"])


@dataclass(frozen=True)
class SyntheticFunctions:
    """The functions of all operators, from their selectivities and the sizes of their state."""

    toward: Mapping[str, Mapping[str, float]]
    sizes: Mapping[str, tuple[int, int]]

    def __call__(self) -> dict[str, Function]:
        import pyarrow as pa

        from ..spark import arrow, keyed

        entry = pa.struct({"records": pa.int64(), "pad": pa.binary()})
        made = {}
        for name, selectivity in self.toward.items():
            sends = Sends(selectivity, {to: self.sizes[to][0] if to in self.sizes else 0 for to in selectivity})
            schema, kept = SENT if selectivity else None, self.sizes.get(name)
            made[name] = keyed(Keeps(sends, kept[1]), schema, key="key", state=entry) if kept else arrow(sends, schema)
        return made


def sent(ids: Array, selectivity: float) -> Array:
    """Return the numbers of the records that these records become on an edge.

    Examples
    --------
    >>> import numpy as np
    >>> sent(np.array([0, 1, 2, 3]), 0.5).tolist(), sent(np.array([1, 3]), 2.5).tolist()
    ([0, 1], [2, 3, 4, 7, 8, 9])
    """
    import numpy as np

    low = np.floor(ids * selectivity).astype(np.int64)
    counts = np.floor((ids + 1) * selectivity).astype(np.int64) - low
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    numbers: Array = np.repeat(low - (ends - counts), counts) + np.arange(total)
    return numbers


@dataclass(frozen=True)
class Sends:
    """An operator without state, which sends records according to its selectivities, with a key for the receiver's
    state.
    """

    selectivity: Mapping[str, float]
    keys: Mapping[str, int]  # by receiver: keys of its state, or 0

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield from self.made(batch)

    def made(self, batch: Any) -> Iterator[Any]:
        """Yield the records for each receiver."""
        import pyarrow as pa

        ids = batch.column("id").to_numpy()
        for receiver, selectivity in self.selectivity.items():
            numbers = sent(ids, selectivity)
            if len(numbers):
                columns = [pa.array(numbers), pa.array(numbers % max(1, self.keys[receiver]))]
                yield receiver, pa.RecordBatch.from_arrays(columns, names=["id", "key"])


@dataclass(frozen=True)
class Keeps:
    """An operator with state, which counts records by key, and keeps `bytes` per key."""

    sends: Sends
    bytes: int

    def __call__(self, batches: Iterator[Any], known: dict[int, Any]) -> Iterator[Any]:
        pad = bytes(self.bytes)
        for batch in batches:
            for found in batch.column("key").value_counts().to_pylist():
                key = found["values"]
                before = known[key]["records"] if key in known else 0
                known[key] = {"records": before + found["counts"], "pad": pad}
            yield from self.sends.made(batch)


@dataclass(frozen=True)
class Expected:
    """The expected state of synthetic operators, computed record by record."""

    sources: tuple[str, ...]
    toward: Mapping[str, Mapping[str, float]]
    sizes: Mapping[str, tuple[int, int]]

    def __call__(self, rows: Iterable[dict[str, Any]]) -> Answers:
        answers: Answers = {name: {} for name in self.sizes}
        for row in rows:
            left = [(self.sources[row["source"]], row["id"])]
            while left:
                name, number = left.pop()
                if name in self.sizes:
                    keys, size = self.sizes[name]
                    entry = answers[name].setdefault(number % keys, {"records": 0, "pad": bytes(size)})
                    entry["records"] += 1
                for receiver, s in self.toward[name].items():
                    left += [(receiver, n) for n in range(math.floor(number * s), math.floor((number + 1) * s))]
        return answers
