"""The tuples engine of a sequential job: micro-batches of records that come one by one.

A batch begins when the last one is done, at least `trigger_s` after that one began, and as soon as anything waits. It
takes what waits in the logs, the oldest first and `most_records` of it at most, through one operator after the other,
and all that comes of it comes out at its end: until then its records count in the log. Where the plant's words leave a
choice:

* An operator's records are dealt to its instances in turn, or at random where grouping is "split". The sum of n service
  times is drawn at once, from its own law, which is as good as one by one: nobody sees them apart.
* A stage lasts as long as its slowest instance: as its work takes with a core of its own, or as the node's cores take
  for what all of the stage's instances there compute, shared fairly; and no less than the external server needs.
* A pause freezes the batch. In another place it is begun anew, from the logs; so nothing is lost when a node dies.
* While an operator has no instance on a node that is up, the job stands still.
"""

from __future__ import annotations

import numpy as np

from .engine import Window
from .layout import Array, Graph, Layout
from .tuples_batches import play
from .tuples_latency import latency
from .tuples_stages import Batch, book, empty, grown, numbers


class BatchTuples:
    """An Engine; `arrivals` as for `Tuples`."""

    def __init__(
        self,
        graph: Graph,
        layout: Layout,
        random: np.random.Generator,
        trigger_s: float,
        overhead_s: float,
        arrivals: str = "poisson",
        most_records: float = np.inf,
    ):
        self._graph, self._random, self._even = graph, random, arrivals == "even"
        self._batch: Batch = empty(graph, len(layout.instances))
        for name, value in (("trigger", trigger_s), ("overhead", overhead_s), ("most", most_records)):
            self._batch.g[name] = value
        self._edges = np.argsort(graph.out)  # from the order by operator back to that of the topology
        self._layout: Layout | None = None
        self._zero(len(layout.cores))
        self.change(layout)

    def change(self, layout: Layout) -> None:
        """Another layout. A batch goes on as it began if no instance moves."""
        old, b = self._layout, self._batch
        self._layout = layout
        if old is not None:
            book(b)
            self._book()
        kept = old is not None and bool(np.all(old.here == layout.here))
        self._batch = numbers(b, self._graph, layout, kept)
        if not kept:
            g = b.g[0]
            b.ops["waiting"] += b.ops["running"]
            b.ops["running"] = 0
            g["waiting"] += g["running"]
            g["running"], g["left"], g["end"] = 0, np.inf, np.inf
        b.g["halted"] = bool(np.any(layout.here[layout.cores > 0].sum(axis=0) == 0))
        self._hold()

    def pause(self, seconds: Array) -> None:
        """The job stands still for the longest of these, as its stages take turns."""
        g = self._batch.g[0]
        g["until"] = max(g["until"], g["now"] + float(np.max(seconds)))
        self._hold()

    def hold(self, count: Array, seconds: Array) -> None:
        """A stage ends with its slowest instance, so a batch waits for all of them."""
        self.pause(np.where(count.any(axis=0), seconds, 0.0))

    def lose(self, share: Array) -> None:
        """Nothing: the batch is run again from the logs."""

    def play(self, rates: Array, dt: Array, noise: Array) -> None:
        assert self._layout is not None
        rates, dt = np.ascontiguousarray(rates, dtype=float), np.ascontiguousarray(dt, dtype=float)
        self._batch.ops["seconds"] = self._layout.seconds * noise
        self._batch.g["tick"], self._batch.g["tick_end"] = 0, self._batch.g["now"]
        while not play(self._batch, self._random, rates, dt, self._even):
            self._batch = grown(self._batch)

    def window(self) -> Window:
        b, ops, g = self._batch, self._batch.ops, self._batch.g[0]
        book(b)
        self._book()
        with np.errstate(invalid="ignore"):
            waited = ops["waited"] / np.where(ops["begun"] > 0, ops["begun"], np.nan)
        out = Window(
            arrived=ops["arrived"].astype(float),
            done=ops["done"].astype(float),
            dropped=ops["dropped"].astype(float),
            busy=self._busy,
            blocked=np.zeros(len(ops)),
            cpu=self._cpu.sum(axis=0),
            waited_s=waited,
            sent=b.edges["sent"][self._edges].astype(float),
            cores=self._cpu.sum(axis=1),
            ended=float(g["ended"]),
            stopped=float(g["stopped"]),
            queue=(ops["waiting"] + ops["running"]).astype(float),
            latency=latency(g["latency"], g["ended"], b.histogram[0]),
            event_latency=latency(g["event_latency"], g["ended"], b.histogram[1]),
        )
        for name in ("ended", "stopped", "latency", "event_latency"):
            g[name] = 0.0
        for name in ("arrived", "done", "dropped", "begun", "waited"):
            ops[name] = 0
        b.edges["sent"], b.histogram[:] = 0, 0.0
        self._zero(len(b.nodes))
        return out

    @property
    def mass(self) -> float:
        return float(self._batch.ops["waiting"].sum() + self._batch.ops["running"].sum())

    def _hold(self) -> None:
        """Stand still or go on, as pauses and nodes say."""
        g = self._batch.g[0]
        still = g["halted"] or g["until"] > g["now"]
        if still and not g["still"]:
            g["left"] = g["end"] - g["now"]
        if g["still"] and not still:
            g["end"] = g["now"] + g["left"]
        g["still"] = still

    def _zero(self, nodes: int) -> None:
        self._busy = np.zeros(len(self._batch.ops))
        self._cpu = np.zeros((nodes, len(self._batch.ops)))

    def _book(self) -> None:
        inst = self._batch.inst
        self._busy += np.bincount(inst["op"], inst["busy"], minlength=len(self._busy))
        np.add.at(self._cpu, (inst["node"], inst["op"]), inst["cpu"])
        inst["busy"] = inst["cpu"] = 0.0
