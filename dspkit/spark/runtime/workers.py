"""The workers of a job: the slots of its Spark and, on a cluster of ours, workers that are added and removed."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf
from typing import Any

from ...core import Deployment
from ..errors import ClusterError, SessionError
from . import processes as nodes
from . import session
from .cluster import SparkCluster, is_name
from .engine import until

_PINGED_S = 10.0  # pings before that are forgotten: a network may change
_COME_S = 90.0  # timeout of an executor: Java starts twice, on a busy machine


class Workers:
    """The workers of one job; without a cluster of ours, the slots of its Spark."""

    def __init__(self, spark: Any, cluster: SparkCluster | None):
        self._spark, self._cluster = spark, cluster
        if cluster is not None and spark.sparkContext.master != cluster.url:
            raise SessionError(
                f"a Spark that runs already in this process, at {spark.sparkContext.master}",
                expected=f"no Spark, or one at {cluster.url}",
                fix="stop it first: SparkSession.getActiveSession().stop()",
            )
        self._leaving: tuple[str, ...] = ()
        self._ready = False  # whether the first workers are known to be ready

    @property
    def cores(self) -> int:
        """Slots per worker of a cluster of ours; 0 without one."""
        return 0 if self._cluster is None else self._cluster.cores

    def names(self, deployment: Deployment) -> tuple[str, ...]:
        """Return the workers of a cluster of ours that a deployment runs on: those that it places instances on first.

        Others that are not needed any more are the newest; new ones that it does not name continue the numbering.
        """
        if self._cluster is None:
            return ()
        running = [name for name in self._cluster.workers if name not in self._leaving]
        named = [name for name in dict.fromkeys(deployment.placement.values()) if is_name(name)]
        count = len(running) if deployment.workers is None else deployment.workers
        kept = sorted(running, key=lambda name: name not in named)[:count]
        fresh = [name for name in named if name not in running][: max(0, count - len(running))]
        return (
            *(name for name in running if name in kept),
            *fresh,
            *self._cluster.next_names(count - len(kept) - len(fresh)),
        )

    def homes(self, places: Sequence[Sequence[str]]) -> str:
        """Return the executors of these workers as Job.java reads them; a worker without one is left to Spark."""
        if self._cluster is None or not places:
            return ""
        at = {name: number for number, name in self._cluster.executors(self._spark.sparkContext.applicationId).items()}
        host = session.host(self._spark)
        return ";".join(",".join(f"{host}_{at[name]}" if name in at else "" for name in each) for each in places)

    def links(self) -> str:
        """Return the links on which frames are held, as Job.java reads them."""
        if self._cluster is None:
            return ""
        ends = ((*(name.rpartition("-")[2] for name in pair), *link) for pair, link in self._cluster.links.items())
        return ";".join(f"{a},{b},{delay!r},{'Infinity' if rate == inf else repr(rate)}" for a, b, delay, rate in ends)

    def delays(self) -> dict[tuple[str, str], float]:
        """Return half of the least round trip between workers of a cluster of ours that executors measured lately."""
        if self._cluster is None:
            return {}
        running, found = set(self._cluster.workers), dict[tuple[str, str], float]()
        for (a, b), seconds in sorted(session.round_trips(self._spark, _PINGED_S).items()):
            pair = (f"worker-{min(a, b)}", f"worker-{max(a, b)}")
            if running.issuperset(pair):
                found[pair] = min(seconds / 2, found.get(pair, inf))
        return found

    @property
    def count(self) -> int | None:
        """The number of workers, without those to be removed; None if it is unknown."""
        return None if self._cluster is None else len(self._cluster.workers) - len(self._leaving)

    def slots(self, workers: int | None) -> int:
        """Return the tasks that can run at once with so many workers, those of other jobs included."""
        if self._cluster is None or workers is None:
            return session.task_slots(self._spark)
        return workers * self._cluster.cores

    @property
    def taken(self) -> int:
        """The slots that other jobs of this process need."""
        return session.reserved(without=self)

    def wait_at_first(self, slots: int) -> None:
        """Wait for the executors of a Spark that has just started; missing ones are reported later."""
        if self._cluster is None and not self._spark.sparkContext.master.startswith("local"):
            until(lambda: session.task_slots(self._spark) >= slots, _COME_S)

    def wait(self, slots: int) -> None:
        """Wait until so many tasks can run: killed executors are restarted, and new ones take some seconds."""
        if not until(lambda: session.task_slots(self._spark) >= slots, _COME_S):
            raise ClusterError(
                f"{session.task_slots(self._spark)} slots after {_COME_S:g} s",
                expected=f"the {slots} that the jobs of this process need at once",
                fix=f"lower the parallelism, or look for the executors: {self._advice()}",
            )

    def _advice(self) -> str:
        """Return what is known of executors that do not come."""
        said = self._cluster.reason() if self._cluster is not None else None
        return f"one ended with: {said}" if said else session.log_advice()

    def scale_up(self, names: Sequence[str]) -> None:
        """Add those of these workers that do not run yet; they are ready when this returns."""
        if self._cluster is None:
            return
        fresh = [name for name in names if name not in self._cluster.workers]
        if not fresh and self._ready:
            return
        self._cluster.add(names=fresh)
        try:
            self.wait(self.slots(len(names)))
            session.warm(self._spark)
        except BaseException:
            self._cluster.remove(fresh)
            raise
        self._ready = True

    def drain(self, names: Sequence[str]) -> None:
        """Begin no more tasks on other workers than these; `terminate()` ends them."""
        if self._cluster is None:
            return
        self._leaving = tuple(name for name in self._cluster.workers if name not in names)
        at = self._cluster.executors(self._spark.sparkContext.applicationId) if self._leaving else {}
        session.retire(self._spark, [number for number, worker in at.items() if worker in self._leaving])

    def terminate(self) -> None:
        """End the workers that were drained, when no task of the job runs there any more."""
        if self._cluster is not None and self._leaving:
            self._cluster.remove(self._leaving)
            self._leaving = ()

    def reading(self) -> nodes.Reading:
        """Return the processor time so far, by node, for `processes.shares`."""
        if self._cluster is not None:
            return nodes.node_shares(self._cluster.cpu_s())
        if self._spark.sparkContext.master.startswith("local"):
            return nodes.machine()
        return nodes.others(session.machines(self._spark))
