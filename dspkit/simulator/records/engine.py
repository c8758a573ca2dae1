"""The pipelined record-level engine: each record is simulated, which yields whole distributions, not only means.

Choices where the description of a plant leaves one:

* A queue has room for waiting records and those in transit to it; each instance has one record more, in service.
* Records leave a log in turn. Of idle instances the one that is idle longest takes the next record; instances are
  numbered node by node. A record for a shared queue travels to the node of an instance drawn at random.
* A record is processed when all its outputs have been sent: until then it counts in its operator's queue, as do records
  in transit to it. So for each operator arrived = done + dropped + growth of the queue, in whole numbers.
* Each of n records sent along an edge stands for 1/n of the edge's part of its source record; if n is 0, this part has
  ended. So offered = ended + dropped + inside for source records too. Mean latencies are weighted instead by the
  expected value of what a record stands for, so that a branch that drops much counts as much as one that does not.
* With worker processes (`system/processes.py`) thread and senders take turns at a full queue, the longest waiting
  first, record by record. Records that arrive at one instant over links have an arbitrary order. Where a share of what
  waits is lost, as with a node that dies, each queue loses that share, and each record that waits for a thread is lost
  with that probability.
* A pause freezes an operator's work in progress, external calls included; it still sends finished outputs.
"""

from __future__ import annotations

import numpy as np

from ...core import BackendError
from ...core.typing import Array
from ..job import WindowSums
from ..layout import IndexedGraph, Layout
from .loop import play_records
from .relayout import book_progress, changed, freeze, lose, suspend_instances
from .state import IDLE, RECORD, RecordsState, empty_state, grown_state
from .steps import histogram_latency, lose_inside

_FIRST, _MOST_BYTES = 1024, 2**30
_SLOT = RECORD.itemsize + 12  # bytes per record, with its entry in the heap


class RecordEngine:
    """A pipelined job record by record. `arrivals` are "poisson", or "even" with constant gaps; see `job.Engine`."""

    def __init__(self, graph: IndexedGraph, layout: Layout, random: np.random.Generator, arrivals: str = "poisson"):
        self._graph, self._random, self._even = graph, random, arrivals == "even"
        self._state: RecordsState = empty_state(graph, len(layout.instances), _FIRST)
        self._edges = np.argsort(graph.out)  # from the order by operator to that of the topology
        self._stopped_until = self._stopped = self._ended = 0.0
        self._zero(len(layout.cores))
        self._layout: Layout | None = None
        self.change(layout)

    def change(self, layout: Layout) -> None:
        """Use another layout. An operator whose placement is unchanged continues its work, maybe at another speed."""
        old, n = self._layout, len(layout.instances)
        kept = np.zeros(n, dtype=bool)
        if old is not None:
            freeze(self._state)
            self._book()
            kept = (old.instances == layout.instances) & (old.split == layout.split)
            kept &= np.all(old.node_instances == layout.node_instances, axis=0)
            most = max(len(old.inside), len(layout.inside))  # processes of a node: their number may change
            a, b = (np.pad(x, ((0, most - len(x)), (0, 0), (0, 0))) for x in (old.inside, layout.inside))
            kept &= np.all(a == b, axis=(0, 1))
        self._state = changed(self._state, self._random, self._graph, layout, kept)
        self._state.nodes["at"] = self._state.g["now"]
        self._layout = layout
        self._state.g["fresh"] = 1

    def pause(self, seconds: Array) -> None:
        freeze(self._state)
        g, ops = self._state.g, self._state.ops
        until = g["now"][0] + np.asarray(seconds, dtype=float)
        new = (seconds > 0) & (ops["paused"] == 0)
        ops["stopped_at"][new] = g["now"][0]
        ops["until"] = np.where(ops["paused"] == 1, np.maximum(ops["until"], until), until)
        ops["paused"][new] = 1
        paused = ops["paused"] == 1
        self._stopped_until = ops["until"][paused].max(initial=self._stopped_until)
        self._schedule_resume()

    def hold(self, count: Array, seconds: Array) -> None:
        freeze(self._state)
        count = count.reshape(-1, len(seconds))  # by node, or by process and node
        for place, i in zip(*np.nonzero(count * (seconds > 0)), strict=True):
            suspend_instances(self._state, i, place, int(count[place, i]), float(self._state.g["now"][0] + seconds[i]))
        self._schedule_resume()

    def _schedule_resume(self) -> None:
        """Set the time at which the first of the pauses ends."""
        s = self._state
        until = np.concatenate((s.ops["until"][s.ops["paused"] == 1], s.inst["until"][s.inst["until"] > 0]))
        s.g["resume"] = until.min(initial=np.inf)
        s.g["fresh"] = 1

    def lose(self, share: Array) -> None:
        s = self._state
        for q, st in enumerate(s.stations):
            part = float(share[st["op"]]) * int(st["n"])
            if n := int(part + self._random.random()) if part > 0 else 0:
                lose(s, self._random, q, min(n, int(st["n"])))
        for p in range(len(s.processes)):
            lose_inside(s, self._random, p, np.ascontiguousarray(share, dtype=float))
        s.g["fresh"] = 1
        freeze(s)  # the next `play` resumes the work, and with it the blocked senders

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        assert self._layout is not None
        s = self._state
        rates, dt = np.ascontiguousarray(rates, dtype=float), np.ascontiguousarray(dt, dtype=float)
        s.ops["seconds"] = self._layout.seconds * noise
        start = s.g["now"][0]
        s.g["tick"], s.g["tick_end"] = 0, start
        while not play_records(s, self._random, rates, dt, self._even):
            s = self._state = self._more()
        self._stopped += max(0.0, min(s.g["now"][0], self._stopped_until) - start)

    def window(self) -> WindowSums:
        s, ops, g = self._state, self._state.ops, self._state.g[0]
        book_progress(s)
        self._book()
        with np.errstate(invalid="ignore"):
            waited = ops["waited"] / np.where(ops["begun"] > 0, ops["begun"], np.nan)
        out = WindowSums(
            arrived=ops["arrived"].astype(float),
            done=ops["done"].astype(float),
            dropped=ops["dropped"].astype(float),
            busy=self._busy,
            blocked=self._blocked,
            cpu=self._cpu.sum(axis=0),
            waited_s=waited,
            sent=s.edges["sent"][self._edges].astype(float),
            cores=self._cpu.sum(axis=1),
            ended=float(g["ended"]),
            stopped=self._stopped,
            queue=self._queue(),
            waiting=self._waiting(),
            latency=histogram_latency(g["latency"], g["weight"], s.histogram[0]),
            event_latency=histogram_latency(g["event_latency"], g["weight"], s.histogram[1]),
        )
        self._ended += g["ended"]
        for name in ("ended", "latency", "event_latency", "weight"):
            g[name] = 0.0
        for name in ("arrived", "done", "dropped", "begun", "waited", "waits"):
            ops[name] = 0
        s.edges["sent"] = 0
        s.histogram[:] = 0.0
        self._stopped = 0.0
        self._zero(len(s.nodes))
        return out

    @property
    def mass(self) -> float:
        g = self._state.g[0]
        return max(0.0, float(g["offered"] - g["lost"] - self._ended - g["ended"]))

    @property
    def waits(self) -> Array:
        """Number of records per operator that began service in this window and had found no idle instance.

        A wait for a thread alone does not count.
        """
        return self._state.ops["waits"].copy()

    def _queue(self) -> Array:
        s = self._state
        coming = np.bincount(s.stations["op"], s.stations["coming"], minlength=len(s.ops))
        return self._waiting() + coming + np.bincount(s.inst["op"][s.inst["state"] != IDLE], minlength=len(s.ops))

    def _waiting(self) -> Array:
        """Return the records in queues; those without reserved room count from the moment they are sent."""
        of = self._state.stations
        waiting: Array = np.bincount(of["op"], of["n"] + of["far"], minlength=len(self._state.ops)).astype(float)
        return waiting

    def _zero(self, nodes: int) -> None:
        self._busy, self._blocked = (np.zeros(len(self._state.ops)) for _ in range(2))
        self._cpu = np.zeros((nodes, len(self._state.ops)))

    def _book(self) -> None:
        """Add what the instances counted to the sums by operator and node."""
        inst, n = self._state.inst, len(self._state.ops)
        self._busy += np.bincount(inst["op"], inst["busy"], minlength=n)
        self._blocked += np.bincount(inst["op"], inst["blocked"] * (inst["station"] >= 0), minlength=n)
        np.add.at(self._cpu, (inst["node"], inst["op"]), inst["cpu"])
        for name in ("busy", "blocked", "cpu"):
            inst[name] = 0.0

    def _more(self) -> RecordsState:
        """Return a state with room for twice as many records, up to a limit on memory."""
        slots = 2 * len(self._state.recs)
        if slots * _SLOT > _MOST_BYTES:
            raise BackendError(
                f"{len(self._state.recs)} records waiting at {self._state.g['now'][0]:.0f} s",
                expected=f"at most {_MOST_BYTES / 2**30:.0f} GiB of them",
                fix='bound the queues, lower the load, or use engine="fluid"',
            )
        return grown_state(self._state, slots)
