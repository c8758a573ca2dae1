"""Live Spark with state of 10,000 to 10 million keys: rescales, ends of epochs, bytes written, throughput.

Each size has a checkpoint of its own, filled once. Its job then continues from there, in turns with those of the other
sizes in one Spark, so that other load on the machine affects all. Claims compare the largest number of keys with the
smallest; the details have the curve, and 1 GB of values. Stock Spark follows in processes of its own, size by size.

`python -m benchmarks spark_state` ends within DSPKIT_STATE_MINUTES (45) and some minutes for the turn that runs then.
Each turn is kept in build/spark_state.json as soon as it is measured: a claim whose turns are not complete fails with a
word on what is missing, and the same command continues there. In pieces, each with its duration on two quiet cores:

    python -m benchmarks.spark_state light 10000 10000000       rescales and epochs, the sizes in turns; 8 min
    python -m benchmarks.spark_state light 100000 1000000 1000000x1000                             10 min
    python -m benchmarks.spark_state flat 10000 10000000        throughput; 5 min
    python -m benchmarks.spark_state stock sql 10000            stock Spark; 1 min, with 1000000 keys 10 min
    python -m benchmarks.spark_state stock python 10000         transformWithStateInPandas; 5 to 10 min
    python -m benchmarks.spark_state draw                       the chart and the table of docs/performance.md
    python -m benchmarks.spark_state fresh                      forget all turns

`DSPKIT_STATE_KEYS=10000,100000,1000x500 python -m benchmarks spark_state` is a small run; 1000x500 has 1,000 keys with
values of 500 bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import json
import math
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks import Claim, _four

if TYPE_CHECKING:
    from dspkit.spark import SparkJob


class Size(NamedTuple):
    """A number of keys, and the bytes of a value; 8 are an integer."""

    keys: int
    value: int = 8

    def __str__(self) -> str:
        return f"{self.keys:,}" + f" of {self.value:,} B" * (self.value > 8)


_SIZES = os.environ.get("DSPKIT_STATE_KEYS", "10000,100000,1000000,10000000,1000000x1000")
SIZES = tuple(Size(*map(int, each.split("x"))) for each in _SIZES.split(","))
_COUNTS = [size for size in SIZES if size.value == 8]
_STOCK_MOST = {"sql": 1_000_000, "python": 100_000}  # keys; with more, its first batch takes many minutes
_STOCK_LIMIT_S = 900.0
_STORE = Path(__file__).resolve().parent.parent / "build" / "spark_state.json"
_PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
_BEGIN, _LAST = "<!-- spark_state -->\n", "<!-- end of spark_state -->"
_IMAGE = "\n![Silence of a rescale by the number of keys](images/spark_state.svg)\n\n"
_ENGINE = Path(__file__).resolve().parent.parent / "dspkit" / "spark"
_CHART = Path(__file__).resolve().parent.parent / "docs" / "images" / "spark_state.svg"
_END = time.monotonic() + 60 * float(os.environ.get("DSPKIT_STATE_MINUTES", "45"))
LIGHT, FLAT_OUT = 5_000.0, 2_000_000.0  # records/s offered
TURNS = 3
EPOCH_S = 5.0
EPOCHS = 4  # windows of one epoch each, per turn
_FILL = 1_000_000  # records/s offered of the first record of each key
_KEY = 8  # bytes of a key, which is an integer of 64 bits
_AFTER_S = 4.0  # a silence that begins later is not that of the rescale
_PATIENCE_S = 900.0  # until all keys are there, and nothing waits
_STAMP = struct.Struct("<d")


def keys_of(ids: Any, size: int) -> Any:
    """Return the keys of records: each key once, then any of them."""
    import numpy as np

    mixed = (ids.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(20)
    return np.where(ids < size, ids, (mixed % np.uint64(size)).astype(np.int64))


@dataclass(frozen=True)
class Read:
    """Send the key of each record."""

    size: int

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        for batch in batches:
            keys = keys_of(batch.column("id").to_numpy(), self.size)
            yield pa.RecordBatch.from_arrays([pa.array(keys)], names=["key"])


def count(batches: Iterator[Any], known: dict[int, int]) -> Iterator[Any]:
    """Count each key, and send it on."""
    for batch in batches:
        for key in batch.column("key").to_pylist():
            known[key] = known.get(key, 0) + 1
        yield batch


@dataclass(frozen=True)
class CountInBytes:
    """The same with a value of so many bytes, the first of which are the count."""

    value: int

    def __call__(self, batches: Iterator[Any], known: dict[int, bytes]) -> Iterator[Any]:
        rest = os.urandom(self.value - 8)
        for batch in batches:
            for key in batch.column("key").to_pylist():
                before = int.from_bytes(known.get(key, b"")[:8], "little")
                known[key] = (before + 1).to_bytes(8, "little") + rest
            yield batch


@dataclass(frozen=True)
class Sink:
    """Write down when each batch arrives."""

    stamps: Path

    def __call__(self, batches: Iterator[Any]) -> Iterator[Any]:
        with self.stamps.open("ab", buffering=0) as file:
            for _ in batches:
                file.write(_STAMP.pack(time.time()))
        yield from ()


@dataclass(frozen=True)
class Case:
    """The job of one size."""

    spark: Any
    folder: Path
    size: Size
    per_s: float  # offered, once all keys are there

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def stamps(self) -> Path:
        return self.folder / "stamps"

    def job(self) -> SparkJob:
        """Continue the job, and return it when all keys are there and, at a light load, next to no records wait."""
        from dspkit import Deployment, Topology, workload
        from dspkit.core import Operator
        from dspkit.spark import SparkJob, TraceSource, arrow, keyed

        functions = {
            "read": arrow(Read(self.size.keys), "key int64"),
            "count": keyed(*self._counting(), key="key", state="int64" if self.size.value == 8 else "binary"),
            "sink": arrow(Sink(self.stamps)),
        }
        filled_s = max(1, -(-self.size.keys // _FILL))
        load = workload.Jump(self.size.keys / filled_s, self.per_s, filled_s)
        job = SparkJob(
            Topology(
                tuple(Operator(name, 8, stateful=name == "count") for name in functions),
                Topology.chain(*functions).edges,
            ),
            functions,
            TraceSource(load if self.per_s == LIGHT else workload.Constant(self.per_s)),
            deployment=Deployment({"read": 1, "count": 2, "sink": 1}),
            checkpoint=self.checkpoint,
            spark=self.spark,
            master=self.spark.sparkContext.master,
            window_s=1.0,
            epoch_s=EPOCH_S,
        )
        end = time.monotonic() + _PATIENCE_S
        while (s := job.observe()).operators["count"].state_keys != self.size.keys or self._lags(s.lag):
            if time.monotonic() > end:
                job.close()
                raise TimeoutError(f"{self.size} keys are not there after {_PATIENCE_S:g} s: {s}")
        return job

    def _counting(self) -> tuple[Any, str]:
        """Return the function that counts, and the columns that it sends."""
        return (count if self.size.value == 8 else CountInBytes(self.size.value)), "key int64"

    def _lags(self, lag: float) -> bool:
        return self.per_s == LIGHT and lag > self.per_s / 5


Medians = dict[Size, dict[str, float]]
Turn = dict[str, list[float]]  # the values of one turn by name, and the machine's load then


@cache
def code() -> str:
    """Return a fingerprint of the live engine, by which kept turns are valid."""
    files = sorted(path for end in ("py", "java") for path in _ENGINE.rglob(f"*.{end}"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


class Kept:
    """The turns that were measured so far with the present code, by kind and size, in a file."""

    def __init__(self) -> None:
        self.turns: dict[str, dict[str, list[Turn]]] = {}
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = json.loads(_STORE.read_text(encoding="utf-8"))
            if found["code"] == code():
                self.turns = found["turns"]

    def of(self, kind: str, size: Size) -> list[Turn]:
        return self.turns.get(kind, {}).get(str(size), [])

    def add(self, kind: str, size: Size, turn: Turn) -> None:
        """Keep a turn; the file is replaced as a whole."""
        turns = self.turns.setdefault(kind, {}).setdefault(str(size), [])
        turns.append(turn | {"load": [_four.load()]})
        _STORE.parent.mkdir(exist_ok=True)
        fresh = _STORE.with_suffix(f".{os.getpid()}")
        fresh.write_text(json.dumps({"code": code(), "turns": self.turns}, indent=1) + "\n", encoding="utf-8")
        fresh.replace(_STORE)

    def medians(self, kind: str, sizes: Sequence[Size]) -> Medians:
        """Return the medians over all turns, but the mean of what merges write, as few epochs have one."""
        made: Medians = {}
        for size in sizes:
            values: dict[str, list[float]] = defaultdict(list)
            for turn in self.of(kind, size):
                for name, each in turn.items():
                    values[name] += each
            made[size] = {
                name: statistics.fmean(each) if name == "merged_over_touched" else statistics.median(each)
                for name, each in values.items()
                if each
            }
        return made


def _complete(kind: str, per_s: float, turn: Callable[[Case], Turn], sizes: Sequence[Size]) -> Medians:
    """Measure the turns of these sizes that are missing, in turns, and return the medians."""
    kept = Kept()
    missing = [size for size in sizes if len(kept.of(kind, size)) < TURNS]
    if missing:
        with _cases(per_s, missing) as cases:
            for number in range(TURNS):
                for case in cases:
                    if len(kept.of(kind, case.size)) <= number:
                        _check_time(f"turn {number + 1} of {TURNS} with {case.size} keys ({kind})")
                        kept.add(kind, case.size, turn(case))
    return kept.medians(kind, sizes)


def _check_time(missing: str) -> None:
    if time.monotonic() > _END:
        raise TimeoutError(f"the time is over before {missing}; the same command continues there")


@contextlib.contextmanager
def _cases(per_s: float, sizes: Sequence[Size]) -> Iterator[list[Case]]:
    """Provide a case per size, filled."""
    from dspkit.spark.runtime import session

    with tempfile.TemporaryDirectory(prefix="dspkit-state-") as folder:
        spark = session.start_session("local[32]", "realtime")
        try:
            cases = [Case(spark, Path(folder, f"{size.keys}x{size.value}"), size, per_s) for size in sizes]
            for case in cases:
                _check_time(f"{case.size} keys are filled in")
                case.folder.mkdir()
                case.job().close()
            yield cases
        finally:
            session.stop(spark)


def _light_turn(case: Case) -> Turn:
    """Return the silence of rescales and p99 in s, and bytes written per epoch and byte touched."""
    with case.job() as job:
        values = _epochs(job, case)
        _silence(job, case, 3)  # the first one of a query takes longer, at any size
        _silence(job, case, 2)
        return {**values, "silence_s": [_silence(job, case, 3), _silence(job, case, 2)]}


@cache
def _light() -> Medians:
    """Return the medians at a light load, by size."""
    return _complete("light", LIGHT, _light_turn, SIZES)


def _silence(job: SparkJob, case: Case, instances: int) -> float:
    """Rescale, and return the longest time between two batches at the sink."""
    job.window_s = 1.0
    job.observe()
    began = time.time()
    job.deploy(job.deployment.scaled({"count": instances}))
    while time.time() < began + _AFTER_S + 1.0:
        job.observe()
    text = case.stamps.read_bytes()
    stamps: list[float] = sorted(at for (at,) in _STAMP.iter_unpack(text[: len(text) // 8 * 8]) if at > began - 1.0)
    return max(b - a for a, b in pairwise([*stamps, time.time()]) if a < began + _AFTER_S)


def _epochs(job: SparkJob, case: Case) -> dict[str, list[float]]:
    """Return p99 in windows with a routine end of an epoch, and what each epoch has written."""
    found: dict[str, list[float]] = defaultdict(list)
    written = _Written(case)
    job.window_s = EPOCH_S
    for _ in range(EPOCHS):
        s = job.observe()
        if s.commit_s > 0 and not s.downtime_s and s.event_latency is not None:
            found["p99_s"].append(s.event_latency.p99)
        for committed, merged in written.since_the_last_look():
            found["bytes_over_touched"].append(committed)
            found["merged_over_touched"].append(merged)
    return found


class _Written:
    """The bytes of state that epochs have written, over those of the keys that they have touched."""

    def __init__(self, case: Case):
        from dspkit.spark.dataflow.checkpoint import Checkpoint

        self._checkpoint, self._size = Checkpoint(case.checkpoint), case.size
        self._epoch, self._known = self._checkpoint.committed(), self._runs(self._checkpoint.committed()).keys()

    def _runs(self, epoch: int) -> dict[str, Any]:
        from dspkit.spark.dataflow.state import read_plan
        from dspkit.spark.dataflow.store import operator_parts

        plan = read_plan(self._checkpoint.own, epoch)
        assert plan is not None
        return {part.name: part for part in operator_parts(self._checkpoint.own, plan, 1)}

    def since_the_last_look(self) -> Iterator[tuple[float, float]]:
        """Yield for each epoch the ratio of what its commit wrote, and of what merges wrote beside it."""
        from dspkit.spark.dataflow.state import read_plan

        for epoch in range(self._epoch + 1, self._checkpoint.committed() + 1):
            runs, plan = self._runs(epoch), read_plan(self._checkpoint.own, epoch)
            assert plan is not None
            fresh = [run for name, run in runs.items() if name not in self._known]
            manifests = (self._checkpoint.own / "state" / plan.token).iterdir()
            committed = sum(run.size for run in fresh if not run.level) + sum(p.stat().st_size for p in manifests)
            self._epoch, self._known = epoch, runs.keys()
            if touched := self._touched(epoch):
                yield committed / touched, sum(run.size for run in fresh if run.level) / touched

    def _touched(self, epoch: int) -> int:
        """Return the bytes of the keys and values that an epoch has touched, by the records that it has read."""
        import numpy as np

        (before,), (after,) = self._checkpoint._offsets(epoch - 1), self._checkpoint._offsets(epoch)
        ids = [np.arange(a, b) * len(after) + p for p, (a, b) in enumerate(zip(before, after, strict=True))]
        return (_KEY + self._size.value) * len(np.unique(keys_of(np.concatenate(ids), self._size.keys)))


def _flat_turn(case: Case) -> Turn:
    """Return the records/s of the keyed operator, as fast as it can, in a window of two epochs."""
    with case.job() as job:
        job.window_s = EPOCH_S
        job.observe()  # sources begin carefully
        job.window_s = 2 * EPOCH_S
        before, began = _four.cpu_by_process(), time.monotonic()
        per_s = job.observe().operators["count"].processing_rate
        cpu_s, seconds = _four.spent(before, _four.cpu_by_process()), time.monotonic() - began
        return {"per_s": [per_s], "per_cpu_s": [per_s * seconds / cpu_s]}


@cache
def _flat_out() -> Medians:
    return _complete("flat", FLAT_OUT, _flat_turn, SIZES)


def _detail(found: Medians, *names: str) -> dict[str, float]:
    return {f"{name} {size}": found[size][name] for name in names for size in SIZES} | {"load": _four.load()}


def _large_over_small(found: Medians, name: str) -> float:
    return found[max(_COUNTS)][name] / found[min(_COUNTS)][name]


def _stock_turn(kind: str, size: Size) -> Turn:
    """Return the figures of stock Spark; none if it does not end in time, which is a result as well."""
    command = [sys.executable, "-m", "benchmarks._stock_state", kind, str(size.keys)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_STOCK_LIMIT_S, check=True)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        print(f"stock Spark ({kind}, {size}): {type(error).__name__} {str(error.stderr)[-300:]}", file=sys.stderr)
        return {}
    return {name: [each] for name, each in json.loads(done.stdout.splitlines()[-1]).items()}


def _measure_stock(kinds: Sequence[str], sizes: Sequence[Size]) -> None:
    kept = Kept()
    for size in sizes:
        for kind in kinds:
            if size.value == 8 and size.keys <= _STOCK_MOST[kind] and not kept.of(f"stock {kind}", size):
                _check_time(f"stock Spark ({kind}) with {size} keys")
                kept.add(f"stock {kind}", size, _stock_turn(kind, size))


@cache
def _stock() -> dict[str, float]:
    """Return the figures of stock Spark by kind and size; a size that does not end in time is left out."""
    _measure_stock(tuple(_STOCK_MOST), _COUNTS)
    found = {kind: Kept().medians(f"stock {kind}", _COUNTS) for kind in _STOCK_MOST}
    return {
        f"{name} {kind} {size}": each
        for kind, sizes in found.items()
        for size, figures in sizes.items()
        for name, each in figures.items()
    }


def rescale_silence_large_over_small() -> Claim:
    """The silence of a rescale (2 to 3 instances and back) with the largest state over that with the smallest."""
    found = _light()
    return Claim(_large_over_small(found, "silence_s"), "x", 1.5, "lower", _detail(found, "silence_s"))


def epoch_bytes_over_touched() -> Claim:
    """Bytes that the commit of an epoch writes over the bytes of the keys it touched, at the worst size."""
    found = _light()
    worst = max(each["bytes_over_touched"] for each in found.values())
    return Claim(worst, "x", 3.0, "lower", _detail(found, "bytes_over_touched", "merged_over_touched"))


def p99_large_over_small() -> Claim:
    """The 99th percentile of latency around routine ends of epochs, largest over smallest."""
    found = _light()
    return Claim(_large_over_small(found, "p99_s"), "x", 1.5, "lower", _detail(found, "p99_s"))


def throughput_large_over_small() -> Claim:
    """Records/s flat out over random keys, largest over smallest."""
    found = _flat_out()
    return Claim(_large_over_small(found, "per_s"), "x", 0.8, detail=_detail(found, "per_s", "per_cpu_s"))


def stock_rescale_silence_over_ours() -> Claim:
    """The silence of a rescale of stock Spark (SQL aggregation; stop, repartition, start) over ours, smallest size."""
    ours, stock = _light(), _stock()
    least = min(_COUNTS)
    detail = stock | _detail(ours, "silence_s", "bytes_over_touched")
    return Claim(stock[f"silence_s sql {least}"] / ours[least]["silence_s"], "x", 5.0, detail=detail)


_SERIES = {"light": ("dspkit", "#0072b2"), "stock sql": ("stock Spark, SQL", "#d55e00")}
_SERIES |= {"stock python": ("stock Spark, transformWithStateInPandas", "#009e73")}
_ROWS = {
    "silence of a rescale, s": ("light", "silence_s"),
    "p99 in windows with an epoch's end, s": ("light", "p99_s"),
    "bytes per epoch over those touched": ("light", "bytes_over_touched"),
    "the same of merges": ("light", "merged_over_touched"),
    "records/s flat out": ("flat", "per_s"),
    "records per CPU second": ("flat", "per_cpu_s"),
    "stock, SQL: silence, s": ("stock sql", "silence_s"),
    "stock, SQL: bytes per batch": ("stock sql", "bytes_per_batch"),
    "stock, transformWithState: silence, s": ("stock python", "silence_s"),
}


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def table(kept: Kept) -> str:
    """Return all that is stored as a table of Markdown; an empty cell was not measured."""
    lines = [
        "| |"
        + "|".join(f" {size.keys:,} keys{f', {size.value:,} B each' * (size.value > 8)} " for size in SIZES)
        + "|",
        "|---" * (len(SIZES) + 1) + "|",
    ]
    for label, (kind, name) in _ROWS.items():
        found = kept.medians(kind, SIZES)
        cells = [_short(found[size][name]) if name in found[size] else "" for size in SIZES]
        lines.append(f"| {label} | " + " | ".join(cells) + " |")
    loads = [
        each for sizes in kept.turns.values() for turns in sizes.values() for turn in turns for each in turn["load"]
    ]
    turns = len(loads)
    return (
        "\n".join([*lines, "", f"{turns} turns; load average {min(loads):.1f} to {max(loads):.1f}."]) if loads else ""
    )


def chart(kept: Kept) -> str:
    """Return the silence of a rescale by the number of keys, both on logarithmic axes, as SVG."""
    points = {
        kind: [(size.keys, found[size]["silence_s"]) for size in _COUNTS if "silence_s" in found[size]]
        for kind in _SERIES
        for found in [kept.medians(kind, SIZES)]
    }
    seconds = [s for each in points.values() for _, s in each] or [1.0]
    low, high = math.floor(math.log10(min(seconds))), math.ceil(math.log10(max(seconds) * 1.01))
    left, right = math.log10(min(s.keys for s in _COUNTS)), math.log10(max(s.keys for s in _COUNTS))

    def x(keys: float) -> float:
        return 70 + 520 * (math.log10(keys) - left) / max(1e-9, right - left)

    def y(value: float) -> float:
        return 330 - 270 * (math.log10(value) - low) / max(1, high - low)

    drawn = [
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 420" font-family="sans-serif" font-size="13">',
        "<title>Silence of a rescale by the number of keys</title>",
        '<rect width="640" height="420" fill="white"/>',
        '<text x="70" y="24" font-size="15">Silence at the sink during a rescale, in seconds</text>',
    ]
    for power in range(low, high + 1):
        at = y(10.0**power)
        drawn.append(f'<line x1="70" x2="590" y1="{at:.1f}" y2="{at:.1f}" stroke="#ddd"/>')
        drawn.append(f'<text x="62" y="{at + 4:.1f}" text-anchor="end">{10.0**power:g}</text>')
    drawn += [f'<text x="{x(s.keys):.1f}" y="352" text-anchor="middle">{s.keys:,}</text>' for s in _COUNTS]
    drawn.append('<text x="330" y="372" text-anchor="middle">keys</text>')
    dashes = ("", "6 4", "2 3")
    for (kind, each), dash, row in zip(points.items(), dashes, range(3), strict=True):
        name, colour = _SERIES[kind]
        path = " ".join(f"{x(keys):.1f},{y(value):.1f}" for keys, value in each)
        stroke = f'stroke="{colour}" stroke-width="2" stroke-dasharray="{dash}"'
        drawn.append(f'<polyline points="{path}" fill="none" {stroke}/>')
        for keys, value in each:
            drawn.append(f'<circle cx="{x(keys):.1f}" cy="{y(value):.1f}" r="4" fill="{colour}"/>')
            label = f"{value:.2g}" if value < 10 else f"{value:.0f}"
            drawn.append(f'<text x="{x(keys):.1f}" y="{y(value) - 9:.1f}" text-anchor="middle">{label}</text>')
        at = 70 + (0, 95, 250)[row]
        drawn.append(f'<line x1="{at}" x2="{at + 26}" y1="400" y2="400" {stroke}/>')
        drawn.append(f'<text x="{at + 32}" y="404">{name}</text>')
    return "\n".join([*drawn, "</svg>"]) + "\n"


def main(words: Sequence[str]) -> None:
    """Measure one piece, or draw what is stored."""
    piece, rest = (words[0], list(words[1:])) if words else ("", [])
    kinds = [rest.pop(0)] if piece == "stock" and rest and rest[0] in _STOCK_MOST else list(_STOCK_MOST)
    sizes = tuple(Size(*map(int, each.split("x"))) for each in rest) or SIZES
    if piece == "light":
        _complete("light", LIGHT, _light_turn, sizes)
    elif piece == "flat":
        _complete("flat", FLAT_OUT, _flat_turn, sizes)
    elif piece == "stock":
        _measure_stock(kinds, sizes)
    elif piece == "fresh":
        _STORE.unlink(missing_ok=True)
    elif piece == "draw":
        _CHART.write_text(chart(Kept()), encoding="utf-8")
        before, rest_of_page = _PAGE.read_text(encoding="utf-8").split(_BEGIN)
        after = rest_of_page.partition(_LAST)[2]
        _PAGE.write_text(f"{before}{_BEGIN}{_IMAGE}{table(Kept())}\n\n{_LAST}{after}", encoding="utf-8")
    else:
        sys.exit(__doc__)
    print(table(Kept()))


if __name__ == "__main__":
    importlib.import_module("benchmarks.spark_state").main(sys.argv[1:])  # classes travel to workers under this name
