"""Stock Spark with state: `python -m benchmarks._stock_state {sql,python} KEYS`, in a process of its own.

Prints one line of JSON: the silence of a rescale (stop, repartition of the checkpoint, start), the seconds and the
written bytes of a routine batch. 5,000 records/s come as files, the first of which has all keys. State is in RocksDB,
with its changelog.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks._rivals import _processor

PER_S = 5_000
_EVERY_S = 0.5  # between files
_BATCHES = 5  # routine ones, before the rescale and after it
_LIMIT_S = 600.0
_PARTITIONS = (4, 6)
_CONF = {
    "spark.sql.shuffle.partitions": str(_PARTITIONS[0]),
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
}


def _write(folder: Path, number: int, keys: Any) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    fresh = folder / f".{number}"
    pq.write_table(pa.table({"name": pa.array(keys)}), fresh)
    fresh.rename(folder / f"{number:06}.parquet")


def _feed(folder: Path, size: int, ended: threading.Event) -> None:
    import numpy as np

    random, number = np.random.default_rng(1), 1
    while not ended.wait(_EVERY_S):
        _write(folder, number, random.integers(0, size, round(PER_S * _EVERY_S)))
        number += 1


class Query:
    """The running query, and the times at which its batches ended."""

    def __init__(self, spark: Any, kind: str, folder: Path):
        self._spark, self._kind, self._folder = spark, kind, folder
        self.ends: list[float] = []
        self._query: Any = None

    def start(self) -> None:
        rows = self._spark.readStream.schema("name long").parquet(str(self._folder / "in")).groupBy("name")
        if self._kind == "sql":
            counted = rows.count()
        else:
            counted = rows.transformWithStateInPandas(
                statefulProcessor=_processor(),
                outputStructType="name long, n long",
                outputMode="Update",
                timeMode="None",
            )
        writer = counted.writeStream.outputMode("update").foreachBatch(self._write)
        self._query = writer.option("checkpointLocation", str(self._folder / "checkpoint")).start()

    def _write(self, rows: Any, batch: int) -> None:
        rows.write.format("noop").mode("append").save()
        self.ends.append(time.time())

    def wait(self, batches: int) -> None:
        end = time.monotonic() + _LIMIT_S
        while len(self.ends) < batches:
            if (error := self._query.exception()) is not None:
                raise RuntimeError(str(error)[:1000])  # while Java can still be asked for its text
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.ends)} batches after {_LIMIT_S:g} s")
            time.sleep(0.05)

    def rescale(self) -> float:
        """Return the seconds from the end of one batch to that of the first one with other partitions."""
        before = len(self.ends)
        self.wait(before + 1)
        last = self.ends[-1]
        self._query.stop()
        self._spark._streamingCheckpointManager.repartition(
            str(self._folder / "checkpoint"), _PARTITIONS[1], enforce_exactly_once_sink=False
        )
        self._spark.conf.set("spark.sql.shuffle.partitions", str(_PARTITIONS[1]))
        count = len(self.ends)
        self.start()
        self.wait(count + 1)
        return self.ends[count] - last

    def stop(self) -> None:
        self._query.stop()


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main(kind: str, size: int) -> dict[str, float]:
    """Return the figures of one size."""
    import numpy as np

    from dspkit.spark.runtime import session

    ended = threading.Event()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "in").mkdir()
        _write(folder / "in", 0, np.arange(size))
        spark = session.start_session("local[8]", "microbatch", _CONF)
        session.find_modules(spark)
        query = Query(spark, kind, folder)
        try:
            query.start()
            query.wait(1)
            threading.Thread(target=_feed, args=(folder / "in", size, ended), daemon=True).start()
            query.wait(3)
            before, first = _bytes(folder / "checkpoint"), len(query.ends)
            query.wait(first + _BATCHES)
            spent = (query.ends[-1] - query.ends[first - 1]) / (len(query.ends) - first)
            written = (_bytes(folder / "checkpoint") - before) / (len(query.ends) - first)
            silence = query.rescale()
            return {"silence_s": silence, "batch_s": spent, "bytes_per_batch": written}
        finally:
            ended.set()
            query.stop()
            session.stop(spark)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]))))
