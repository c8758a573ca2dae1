"""What a job's tasks run on: the slots that its Spark has and, on a cluster of ours, workers that come and go."""

from __future__ import annotations

from typing import Any

from . import nodes, session
from .cluster import SparkCluster
from .engine import until
from .errors import ClusterError, SessionError

_COME_S = 90.0  # for an executor: Java starts twice, on a machine that is busy


class Workers:
    """The workers of one job; without a cluster of ours, whatever its Spark has."""

    def __init__(self, spark: Any, cluster: SparkCluster | None):
        self._spark, self._cluster = spark, cluster
        if cluster is not None and spark.sparkContext.master != cluster.url:
            raise SessionError(
                f"a Spark that runs already in this process, at {spark.sparkContext.master}",
                expected=f"no Spark, or one at {cluster.url}",
                fix="stop it first: SparkSession.getActiveSession().stop()",
            )
        self._leaving: tuple[str, ...] = ()
        self._ready = False  # whether the first ones are known to be there

    @property
    def count(self) -> int | None:
        """How many there are, and stay; None if nobody knows."""
        return None if self._cluster is None else len(self._cluster.workers) - len(self._leaving)

    def slots(self, workers: int | None) -> int:
        """Tasks that can run at once with so many workers."""
        if self._cluster is None or workers is None:
            return session.slots(self._spark)
        return workers * self._cluster.cores

    def wait_at_first(self, slots: int) -> None:
        """Give the executors of a Spark that has just started time to come; what is missing then is said later."""
        if self._cluster is None and not self._spark.sparkContext.master.startswith("local"):
            until(lambda: session.slots(self._spark) >= slots, _COME_S)

    def wait(self, slots: int) -> None:
        """Until so many tasks can run: executors that were killed come again, and new ones take some seconds."""
        if not until(lambda: session.slots(self._spark) >= slots, _COME_S):
            raise ClusterError(
                f"{session.slots(self._spark)} slots after {_COME_S:g} s",
                expected=f"the {slots} that the job needs at once",
                fix="see what became of the executors in Spark's own log, or lower the parallelism",
            )

    def come(self, workers: int | None) -> None:
        """Bring them up to that number; when this returns they are there, and ready."""
        if self._cluster is None or workers is None or (workers <= (self.count or 0) and self._ready):
            return
        fresh = self._cluster.add(max(0, workers - (self.count or 0)))
        try:
            self.wait(self.slots(workers))
            session.warm(self._spark)
        except BaseException:
            self._cluster.remove(fresh)
            raise
        self._ready = True

    def leave(self, workers: int | None) -> None:
        """Begin no more tasks on those that are too many, the newest first; they are gone after `gone()`."""
        if self._cluster is None or workers is None or workers >= (self.count or 0):
            return
        self._leaving = self._cluster.workers[workers:]
        at = self._cluster.executors(self._spark.sparkContext.applicationId)
        session.retire(self._spark, [number for number, worker in at.items() if worker in self._leaving])

    def gone(self) -> None:
        """Nothing of the job runs any more on those that leave: end them."""
        if self._cluster is not None and self._leaving:
            self._cluster.remove(self._leaving)
            self._leaving = ()

    def reading(self) -> nodes.Reading:
        """Processor time so far, node by node, for `nodes.shares`."""
        if self._cluster is not None:
            return nodes.parts(self._cluster.cpu_s())
        if self._spark.sparkContext.master.startswith("local"):
            return nodes.machine()
        return nodes.others(session.machines(self._spark))
