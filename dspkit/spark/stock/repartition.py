"""Another number of state partitions for a stopped query: clean stop, copy, repartition, verification, with times.

Spark 4.2 and later rewrite the state of a checkpoint in another number of partitions, in one pass over all keys. It is
refused after a stop in the middle of a batch; `AttachedQuery.stop(clean=True)` stops between two batches.
"""

from __future__ import annotations

import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

from ...core.validation import whole
from ..runtime import session
from .job import AttachedQuery, attach
from .observation import AttachError

_PROVIDER = "spark.sql.streaming.stateStore.providerClass"


@dataclass(frozen=True)
class Repartitioned:
    """The result of a repartition of state, with the seconds of its parts.

    Parameters
    ----------
    checkpoint : str
        The checkpoint that has the new number of partitions.
    before, after : int
        State partitions.
    rows : int or None
        Rows of state, which are the same before and after; None where Spark cannot read them (transformWithState).
    stop_s, copy_s, seconds : float
        Seconds of the clean stop, of the copy, and of the repartition itself.

    Examples
    --------
    >>> Repartitioned("/c", 8, 16, 1000, 0.1, 0.0, 0.9).downtime_s
    1.0
    """

    checkpoint: str
    before: int
    after: int
    rows: int | None
    stop_s: float
    copy_s: float
    seconds: float

    @property
    def downtime_s(self) -> float:
        """Seconds from the request to stop until the query can be started again."""
        return self.stop_s + self.copy_s + self.seconds


def repartition(query: Any, partitions: int, *, copy: str | Path | None = None, spark: Any = None) -> Repartitioned:
    """Give the state of a query another number of partitions; the query is stopped, and not started again.

    Parameters
    ----------
    query : AttachedQuery, StreamingQuery, str or Path
        A running query, which is stopped between two batches, or the checkpoint of a stopped one.
    partitions : int
        State partitions.
    copy : str or Path, optional
        A new folder for a copy of the checkpoint, which is changed instead of the original; for local checkpoints.
    spark : SparkSession, optional
        The session; by default, the running one.

    Examples
    --------
    >>> repartition(query, 16, copy="state-16")  # doctest: +SKIP
    """
    partitions = whole(partitions, "partitions", 1)
    spark = spark or session.running_session()
    manager = getattr(spark, "_streamingCheckpointManager", None)
    if manager is None:
        raise AttachError(
            "no Spark session that can repartition state" if spark is None else f"Spark {spark.version}",
            expected="a running session of classic PySpark 4.2 or newer",
            fix="start one; before Spark 4.2, start the query from a new checkpoint",
        )
    stop_s, checkpoint = 0.0, query
    if not isinstance(query, (str, Path)):
        job = query if isinstance(query, AttachedQuery) else attach(query)
        changer = job._knob("trigger")
        checkpoint = changer.checkpoint()
        _new_number(spark, checkpoint, partitions)  # refused before the query is stopped
        provider = changer.settings((_PROVIDER,)).get(_PROVIDER, "")
        if "RocksDB" not in provider:
            raise AttachError(
                f"state in {provider.rpartition('.')[2] or 'a store that is not known'}",
                expected="RocksDBStateStoreProvider, the only one that Spark repartitions",
                fix=f"set {_PROVIDER} for a new checkpoint; job.tasks(k) changes the tasks of this one",
            )
        stop_s = job.stop(clean=True)
    path, copy_s = str(checkpoint), 0.0
    before = _new_number(spark, path, partitions)
    if copy is not None:
        began = time.perf_counter()
        path = str(_copied(path, Path(copy)))
        copy_s = time.perf_counter() - began
    rows = state_rows(spark, path)
    began = time.perf_counter()
    try:
        manager.repartition(path, partitions)
    except Exception as error:
        said = " ".join(str(error).split())[:300]
        raise AttachError(
            f"a checkpoint that Spark does not repartition ({said})",
            expected="one whose last batch is committed, with RocksDB as its state store",
            fix="start the query again, end it with attach(query).stop(clean=True), and repeat",
        ) from error
    seconds = time.perf_counter() - began
    kept = state_rows(spark, path)
    if kept != rows:
        raise AttachError(
            f"{kept} rows of state after the repartition, {rows} before",
            expected="the same rows",
            fix="do not start the query from this checkpoint; use a copy of the former one",
        )
    return Repartitioned(path, before, partitions, rows, stop_s, copy_s, seconds)


def _new_number(spark: Any, checkpoint: Any, partitions: int) -> int:
    """Return the present number of state partitions; the same number again, or no state, is an error."""
    try:
        told = spark.read.format("state-metadata").load(str(checkpoint)).select("numPartitions").distinct().collect()
    except Exception as error:
        said = " ".join(str(error).split())[:200]
        raise AttachError(
            f"{str(checkpoint)[:200]} ({said})", expected="the checkpoint of a stateful query", fix="check the folder"
        ) from error
    numbers = sorted(int(row[0]) for row in told)
    if not numbers:
        raise AttachError(
            "a query without state",
            expected="a stateful query",
            fix="a stateless one takes spark.sql.shuffle.partitions at its next start",
        )
    if numbers == [partitions]:
        raise AttachError(
            f"{partitions} partitions", expected="another number than it has", fix="nothing is to be done"
        )
    return numbers[-1]


def state_rows(spark: Any, checkpoint: str) -> int | None:
    """Return the rows of state of all operators and stores; None if Spark cannot read one without its variables."""
    found = spark.read.format("state-metadata").load(checkpoint).select("operatorId", "stateStoreName").distinct()
    total = 0
    for operator, store in found.collect():
        reader = spark.read.format("statestore").option("operatorId", operator).option("storeName", store)
        try:
            total += int(reader.load(checkpoint).count())
        except Exception:  # Spark has no class of errors for the stores that want more options
            return None
    return total


def _copied(checkpoint: str, target: Path) -> Path:
    place = urlparse(checkpoint)
    if place.scheme not in ("", "file"):
        raise AttachError(
            f"a copy of {checkpoint:.200}", expected="a local checkpoint", fix="copy it with your own tools"
        )
    if target.exists():
        raise AttachError(f"copy={str(target)!r:.200}, which exists", expected="a new folder", fix="name another one")
    shutil.copytree(unquote(place.path), target)
    return target.absolute()
