"""Slots and workers that a job runs on: those of its Spark and, on a cluster of ours, added and removed workers.

`runnable` and `places` say what fits there. `machine`, `node_shares` and `others` are readings of the work of nodes, as
the kernel or executors count it, and `shares` the utilisation between two readings; empty if it is not measured.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from math import inf
from typing import TYPE_CHECKING, Any

from ...core import Deployment, DeploymentError, Topology
from ...core.lazy import load
from ..errors import ClusterError, SessionError
from ..functions import GROUPS
from . import session
from .cluster import SparkCluster, is_name
from .supervisor import until

if TYPE_CHECKING:
    from ..functions import Function
    from ..sources.log import LogSource
    from ..sources.trace import TraceSource

log = logging.getLogger("dspkit")
_reserved: dict[object, int] = {}  # slots that jobs need at once, by job
_RESERVING = threading.RLock()
Reading = tuple[float, Mapping[str, float]]  # time of all cores so far, and of each node's work, in one unit
_UNTOUCHED = {
    "workers": "start the job on a SparkCluster, whose workers can be added and removed",
    "placement": "start the job in real-time mode on a SparkCluster, whose workers are the places; for a policy that "
    "names machines otherwise: places='no'",
    "settings": "leave the settings unchanged",
}
_PINGED_S = 10.0  # pings before that are forgotten: a network may change
_WARM_S = 100.0  # longest wait for Python in each executor; the first epoch starts what is missing
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
            return task_slots(self._spark)
        return workers * self._cluster.cores

    @property
    def taken(self) -> int:
        """The slots that other jobs of this process need."""
        return reserved(without=self)

    def wait_at_first(self, slots: int) -> None:
        """Wait for the executors of a Spark that has just started; missing ones are reported later."""
        if self._cluster is None and not self._spark.sparkContext.master.startswith("local"):
            until(lambda: task_slots(self._spark) >= slots, _COME_S)

    def wait(self, slots: int) -> None:
        """Wait until so many tasks can run: killed executors are restarted, and new ones take some seconds."""
        if not until(lambda: task_slots(self._spark) >= slots, _COME_S):
            raise ClusterError(
                f"{task_slots(self._spark)} slots after {_COME_S:g} s",
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
            warm(self._spark)
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

    def reading(self) -> Reading:
        """Return the processor time so far, by node, for `shares`."""
        if self._cluster is not None:
            return node_shares(self._cluster.cpu_s())
        if self._spark.sparkContext.master.startswith("local"):
            return machine()
        return others(session.machines(self._spark))


def places(
    names: Sequence[str], deployment: Deployment, workers: Sequence[str], slots: int
) -> tuple[tuple[str, ...], ...]:
    """Return the worker of each instance, by operator in this order; nothing without a placement: Spark chooses then.

    Instances without a placement of their own go where the most slots are free, so that they take none of another's.
    """
    if not deployment.placement:
        return ()
    free = dict.fromkeys(workers, slots)
    for (name, i), worker in deployment.placement.items():
        if worker not in free:
            raise DeploymentError(
                f"a placement of {name}[{i}] on {worker!r}",
                expected=f"one of the workers, {', '.join(workers)}",
                fix="place it on one of them, or keep the worker that it is on",
            )
        free[worker] -= 1
        if free[worker] < 0:
            raise DeploymentError(
                f"a placement of more than {slots} instances on {worker!r}",
                expected=f"at most its {slots} slots",
                fix="place some of them on another worker, or start the cluster with more cores",
            )
    whole = []
    for name in names:
        at = []
        for i in range(deployment.parallelism[name]):
            worker = deployment.placement.get((name, i)) or max(free, key=lambda each: free[each])
            free[worker] -= (name, i) not in deployment.placement
            at.append(worker)
        whole.append(tuple(at))
    return tuple(whole)


def runnable(
    topology: Topology,
    code: Mapping[str, Function],
    sources: Mapping[str, TraceSource | LogSource],
    deployment: Deployment,
    slots: int,
    execution: str,
    knobs: frozenset[str],
    taken: int = 0,
) -> Deployment:
    """Return `deployment` if Spark can run it; raise an error with the reason otherwise.

    Of the `slots` that there are, other jobs need those that are `taken`; in micro-batches jobs take turns.
    """
    k = topology.check(deployment).parallelism
    for name in {"workers", "placement", "settings"} - knobs:
        if getattr(deployment, name) != getattr(Deployment(k), name):
            raise DeploymentError(
                f"another {name}", expected=f"a change of {' or '.join(sorted(knobs))}", fix=_UNTOUCHED[name]
            )
    for name, source in sources.items():
        if k[name] > source.partitions:
            raise DeploymentError(
                f"{k[name]} instances of source {name!r}",
                expected=f"at most its log's {source.partitions} partitions",
                fix="give the source more partitions, or the operator a lower max_parallelism",
            )
    for name, function in code.items():
        if function.stateful and k[name] > GROUPS:
            raise DeploymentError(
                f"{k[name]} instances of {name!r}", expected=f"at most {GROUPS} key groups", fix="lower it"
            )
    needed = sum(k.values()) if execution == "pipelined" else max(k.values())
    if needed > slots - taken:
        others = f", less the {taken} of other jobs in this process" if taken else ""
        raise DeploymentError(
            f"parallelism {dict(k)}, which needs {needed} slots at once",
            expected=f"at most the {slots} that there are{others}",
            fix=f"lower it, or add slots: master='local[{needed + taken}]', or more workers",
        )
    return deployment


def task_slots(spark: Any) -> int:
    """Return the tasks that can run at once on the present executors."""
    master = spark.sparkContext.master
    if local := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master):
        return int(local[1])
    if master.startswith("local") and not master.startswith("local-cluster"):
        return 1 if master == "local" else os.cpu_count() or 1
    context = spark.sparkContext._jsc.sc()
    return int(
        context.schedulerBackend().maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile())
    )


def running_tasks(spark: Any) -> int:
    """Return the tasks that run at present, of all jobs of this Spark."""
    context, running = spark.sparkContext._jsc.sc(), 0
    found = context.statusStore().executorList(True)
    for i in range(found.size()):
        running += int(found.apply(i).activeTasks())
    return running


@contextlib.contextmanager
def reserving() -> Iterator[None]:
    """Keep other jobs from reserving slots between a check of the free ones and `reserve`."""
    with _RESERVING:
        yield


def reserve(job: object, slots: int) -> None:
    """Note that a job needs so many slots at once, also between its epochs, when it uses none; 0 gives them back."""
    with _RESERVING:
        _reserved.pop(job, None)
        if slots:
            _reserved[job] = slots


def reserved(without: object = None) -> int:
    """Return the slots that jobs need at once, without those of one job."""
    with _RESERVING:
        return sum(slots for job, slots in _reserved.items() if job is not without)


def warm(spark: Any) -> None:
    """Let each executor start its Python before a job needs it: an epoch would wait for the imports."""
    context = spark.sparkContext
    local = context.master.startswith("local")  # which is one executor, and its backend lists none
    executors = 1 if local else context._jsc.sc().schedulerBackend().getExecutorIds().size()
    if task_slots(spark) < reserved() + 2 * executors:
        return  # it would take slots that a job needs for its next epoch
    tag = f"dspkit-warm-{secrets.token_hex(4)}"
    context.addJobTag(tag)
    try:
        with session.alarm(_WARM_S, lambda: context.cancelJobsWithTag(tag)) as late:
            each = session.job_session(spark).range(0, 2 * executors, 1, 2 * executors)
            each.mapInArrow(_same, "id bigint").write.format("noop").mode("append").save()
    except Exception:
        if not late.is_set():
            raise
        log.warning("no slots for Python in each executor within %g s: the first epoch may wait for it", _WARM_S)
    finally:
        context.removeJobTag(tag)


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


@cache
def _psutil() -> Any:
    return load("psutil", "spark")


def machine() -> Reading:
    """Return this machine as one node, in seconds of its cores since it started.

    Examples
    --------
    >>> whole, busy = machine()
    >>> 0 < busy["localhost"] <= whole
    True
    """
    psutil = _psutil()
    try:
        times = psutil.cpu_times()._asdict()
    except (OSError, psutil.Error):
        return 0, {}
    whole = sum(times.values()) - times.get("guest", 0) - times.get("guest_nice", 0)  # which are in user and nice, too
    return whole, {"localhost": whole - times["idle"] - times.get("iowait", 0)}


def node_shares(cpu_s: Mapping[str, float]) -> Reading:
    """Return a reading of nodes that share this machine, from the processor seconds of each."""
    return time.monotonic() * (os.cpu_count() or 1), cpu_s


def others(busy_s: Mapping[str, float]) -> Reading:
    """Return a reading of whole machines elsewhere, from seconds of full load of each."""
    return time.monotonic(), busy_s


def shares(before: Reading, after: Reading) -> dict[str, float]:
    """Return the share of its machine's cores that each node's work used between two readings."""
    whole = after[0] - before[0]
    return (
        {name: min(1.0, max(0.0, (spent - before[1].get(name, 0.0)) / whole)) for name, spent in after[1].items()}
        if whole > 0
        else {}
    )
