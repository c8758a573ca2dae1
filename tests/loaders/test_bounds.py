"""Hostile files of at most 1 MB: each is loaded or refused in words, in little memory and in little time."""

import gzip
import json
import os
import re
import resource
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dspkit import History, apps, bo, profiling, run, workload
from dspkit.comparison.result_cache import ResultCache
from dspkit.core import DspkitError
from dspkit.core.history import _schema
from dspkit.loaders import FlinkRest, InfluxDB, Prometheus, SparkEventLog, SparkProgress, StormUI, Table

MOST_BYTES, MOST_MB, MOST_CPU_S = 1 << 20, 100, 5
MB = 1 << 20
YARDSTICK_S = 0.1  # what `yardstick` took on the machine of MOST_CPU_S


def yardstick():
    """Return the time that a fixed piece of work takes here and now: machines differ, and others lengthen it."""
    text = json.dumps([{"a": i, "b": [i / 7, str(i)]} for i in range(20_000)])
    began = time.process_time()
    for _ in range(6):
        json.loads(text)
    return time.process_time() - began


@cache
def a_run():
    """The rows of a good run of one step, and its metadata."""
    path = Path(f"/tmp/dspkit-good-{os.getpid()}.parquet")
    try:
        table = pq.read_table(run("ds2", apps.word_count(), steps=2).save(path, overwrite=True))
    finally:
        path.unlink(missing_ok=True)
    return table.to_pylist(), table.schema.metadata[b"dspkit"]


def save_run(path, rows, head=None, **options):
    good, metadata = a_run()
    table = pa.Table.from_pylist([{**good[0], **row} for row in rows], schema=_schema())
    metadata = metadata if head is None else json.dumps(json.loads(metadata) | head).encode()
    pq.write_table(table.replace_schema_metadata({b"dspkit": metadata}), path, compression="zstd", **options)


def repeated(path, count, **options):
    good, metadata = a_run()
    table = pa.Table.from_pylist(good[:1], schema=_schema())
    table = pa.concat_tables([table] * count).combine_chunks().replace_schema_metadata({b"dspkit": metadata})
    pq.write_table(table, path, compression="zstd", **options)


def wide(path, columns):
    table = pa.table({f"a{i}": [1] for i in range(columns)}).replace_schema_metadata({b"dspkit": a_run()[1]})
    pq.write_table(table, path, store_schema=False, write_statistics=False)


def grouped(path, groups):
    with pq.ParquetWriter(path, pa.schema([("t", pa.int8())]), store_schema=False, write_statistics=False) as writer:
        for _ in range(groups):
            writer.write_table(pa.table({"t": pa.array([1], pa.int8())}))


def words(i, size):
    return chr(0x4E00 + i) * (size // 3)


DEEP = "[" * 900 + "]" * 900
RUNS = {
    "words of 1 MB": lambda p: save_run(p, [{"execution": words(i, MB)} for i in range(200)]),
    "one word often": lambda p: save_run(p, [{"execution": "x" * 100_000}] * 20_000),
    "words after words": lambda p: save_run(
        p,
        [{"execution": "x" * 50_000 + str(i)} for i in range(5000)],
        use_dictionary=False,
        column_encoding={"execution": "DELTA_BYTE_ARRAY"},
    ),
    "a list without end": lambda p: save_run(p, [{"edge_rates": [None] * 3_000_000}]),
    "rows": lambda p: repeated(p, 200_000),
    "decisions": lambda p: save_run(p, [{"decision": a_run()[0][0]["decision"] | {"why": "[" * 50 + "]" * 50}}]),
    "deep reasons": lambda p: save_run(p, [{"decision": a_run()[0][0]["decision"] | {"why": f'{{"a":{DEEP}}}'}}]),
    "deeper reasons": lambda p: save_run(p, [{"decision": a_run()[0][0]["decision"] | {"why": "[" * 28_000}}]),
    "reasons of lists": lambda p: save_run(
        p, [{"decision": a_run()[0][0]["decision"] | {"why": f'{{"a":[{"[],{}," * 100_000}0]}}'}}] * 20
    ),
    "deep settings": lambda p: save_run(p, [{"deployment": a_run()[0][0]["deployment"] | {"settings": DEEP}}]),
    "deep metadata": lambda p: save_run(p, [{}], {"about": json.loads(DEEP)}),
    "metadata of lists": lambda p: save_run(p, [{}], {"about": {"a": [[]] * 90_000}}),
    "metadata that is a list": lambda p: save_run(p, [{}], {"about": [1]}),
    "metadata that is a text": lambda p: save_run(p, [{}], {"about": "x"}),
    "notes": lambda p: save_run(p, [{}], {"notes": [[1, 2, 3]]}),
    "operators": lambda p: save_run(
        p, [{}], {"topology": {"operators": [{"name": f"{i}"} for i in range(9_000)], "edges": []}}
    ),
    "edges": lambda p: save_run(
        p,
        [{}],
        {
            "topology": {
                "operators": [{"name": f"{i}"} for i in range(9_000)],
                "edges": [[f"{i}", f"{i + 1}"] for i in range(8_999)],
            }
        },
    ),
    "columns": lambda p: wide(p, 7_000),
    "row groups": lambda p: grouped(p, 8_000),
    "random bytes": lambda p: p.write_bytes(b"PAR1" + os.urandom(MB - 20) + b"\xff\xff\x0f\x00PAR1"),
}


def table(path, columns, **options):
    pq.write_table(pa.table(columns), path, compression="zstd", **options)


COLUMNS = {"processing_rate": 90.0, "utilisation": 0.5, "parallelism": 2}
TABLES = {
    "words of 1 MB": lambda p: table(
        p,
        {"t": range(900), "operator": [words(i, MB) for i in range(900)], **{k: [v] * 900 for k, v in COLUMNS.items()}},
    ),
    "rows": lambda p: table(
        p, {"t": range(750_000), "operator": ["a"] * 750_000, **{k: [v] * 750_000 for k, v in COLUMNS.items()}}
    ),
    "words after words": lambda p: table(
        p,
        {"t": range(5000), "operator": ["x" * 50_000 + str(i) for i in range(5000)]},
        use_dictionary=False,
        column_encoding={"operator": "DELTA_BYTE_ARRAY"},
    ),
    "columns": lambda p: wide(p, 7_000),
    "row groups": lambda p: grouped(p, 8_000),
}
HEAD = "t,operator,processing_rate,utilisation,parallelism\n"
CSVS = {
    # Valid data, which become as many windows: with shorter rows more of them, and more memory.
    "rows": HEAD + "".join(f"{1.7e9 + 10 * t},flat-map-operator,93.25183,0.51234,2\n" for t in range(19_000)),
    "operators": HEAD + "".join(f"1,{i},1,1,1\n" for i in range(60_000)),
    "bad rows": HEAD + "x\n" * 500_000,
    "empty rows": HEAD + "\n" * 1_000_000,
    "columns": "t," * 500_000,
    "a quote": HEAD + '"' + "x" * 1_000_000,
    "quotes": HEAD + '""' * 500_000,
}
LISTS, OBJECTS = "[" + "[]," * 300_000 + "0]", "[" + '{"":0},' * 140_000 + "0]"
JSONS = {
    "lists": LISTS, "objects": OBJECTS, "empty objects": "[" + "{}," * 340_000 + "0]", "deep": "[" * 1_000_000,
    "deep and closed": DEEP, "deep objects": '{"a":' * 200_000, "numbers": "[" + "1e9," * 250_000 + "0]",
    "digits": "9" * 1_000_000, "words": "[" + '"",' * 340_000 + "0]", "a word": '"' + "x" * 1_000_000 + '"',
}  # fmt: skip
LINES = {  # a piece and how often it stands there; whole, they would make each fork slow
    "newlines": (b"\n" * 1000, 800_000),
    "short lines": (b"{}\n" * 1000, 60_000),
    "one line": (b"x" * 1000, 800_000),
    "lines of lists": (b"[" + b"[]," * 2_000_000 + b"0]\n", 30),
    "events": (b'{"Event":"SparkListenerTaskEnd","Stage ID":1}\n' * 1000, 3_000),
}


def packed(path, name):
    """Write a gzip file of at most 1 MB, once for all loaders: what is left of longer data is cut off."""
    once = path.with_name(f"{name}.gz")
    if once.exists():
        path.hardlink_to(once)
        return
    piece, count = LINES[name]
    data = piece * count
    with gzip.open(path, "wb", 9) as file:
        for start in range(0, len(data), 8 * MB):
            file.write(data[start : start + 8 * MB])
            if path.stat().st_size > 0.8 * MB:
                break
    once.hardlink_to(path)


def cases(folder):
    """Yield a name, the suffix of the file, what writes it, and what loads it."""
    for name, make in RUNS.items():
        yield f"run: {name}", ".parquet", make, History.load
    for name, make in TABLES.items():
        yield f"table: {name}", ".parquet", make, lambda p: Table(p, topology=["a"], parallelism=1).history()
        yield f"trace: {name}", ".parquet", make, workload.Trace.load
        yield f"counts: {name}", ".parquet", make, workload.read
        yield f"rows: {name}", ".parquet", lambda p, make=make: (p.mkdir(), make(p / "rows-1.parquet")), ResultCache
    for name, text in CSVS.items():
        write = lambda p, text=text: p.write_text(text)  # noqa: E731
        yield f"CSV: {name}", ".csv", write, lambda p: Table(p, topology=["a"]).history()
        yield f"CSV without a topology: {name}", ".csv", write, lambda p: Table(p).history()
        yield f"CSV trace: {name}", ".csv", write, workload.Trace.load
    for name, text in JSONS.items():
        write = lambda p, text=text: p.write_text(text)  # noqa: E731
        yield f"Prometheus: {name}", ".json", write, lambda p: Prometheus(p, topology=["a"]).history()
        yield f"library: {name}", ".json", write, bo.Library.load
        yield f"profile: {name}", ".json", write, profiling.load_profile
        yield f"event log: {name}", ".log", write, lambda p: SparkEventLog(p).history()
        yield f"progress: {name}", ".jsonl", write, lambda p: SparkProgress(p).history()
        yield f"points: {name}", ".lp", write, lambda p: InfluxDB(p, topology=["a"]).history()
        whole = lambda p, text=text: (p.mkdir(), (p / "jobs_overview.json").write_text(text))  # noqa: E731
        yield f"Flink: {name}", "", whole, lambda p: FlinkRest(p).history()
        yield f"Storm: {name}", "", whole, lambda p: StormUI(p).history()
    for name in LINES:
        write = lambda p, name=name: packed(p, name)  # noqa: E731
        yield f"packed log: {name}", ".log.gz", write, lambda p: SparkEventLog(p).history()
        yield f"packed progress: {name}", ".jsonl.gz", write, lambda p: SparkProgress(p).history()
        yield f"packed points: {name}", ".lp.gz", write, lambda p: InfluxDB(p, topology=["a"]).history()
        yield f"packed counts: {name}", ".csv.gz", write, workload.read


def main(folder, wanted=""):
    """Load each case in a process of its own, and print a line about it."""
    a_run()
    for i, (name, suffix, make, load) in enumerate(cases(folder)):
        if not re.search(wanted, name):
            continue
        path = Path(folder, f"{i}{suffix}")
        if not os.fork():
            make(path)
            os._exit(0)
        os.wait()
        size = sum(p.stat().st_size for p in (path.iterdir() if path.is_dir() else [path]))
        sys.stdout.flush()
        if not os.fork():
            resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
            before = int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
            began = time.process_time()
            try:
                load(path)
                said = "loaded"
            except DspkitError as error:
                said = f"refused {str(error)!a:.150}"
            except BaseException as error:
                said = f"FOREIGN {error!r:.150}"
            took_s = time.process_time() - began
            if took_s > MOST_CPU_S:
                took_s /= max(1.0, yardstick() / YARDSTICK_S)
            most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            print(json.dumps([name, size, said, most - before, took_s]), flush=True)
            os._exit(0)
        if os.wait()[1]:
            print(json.dumps([name, size, "FOREIGN end", 0, 0]), flush=True)


@pytest.mark.slow
def test_hostile_files_of_a_megabyte_take_little(tmp_path):
    """Time is that of the processor, or what remains of it if a fixed piece of work takes longer, too."""
    code = "import sys; from loaders import test_bounds; test_bounds.main(sys.argv[1])"
    root = Path(__file__).resolve().parents[2]
    path = os.pathsep.join([str(root), str(root / "tests"), *sys.path])
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": path},
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(found) == sum(1 for _ in cases(tmp_path))
    assert [f for f in found if f[1] > MOST_BYTES] == []
    assert [f for f in found if f[2].startswith("FOREIGN")] == []
    assert [f for f in found if f[3] > MOST_MB * MB] == []
    assert [f for f in found if f[4] > MOST_CPU_S] == []


if __name__ == "__main__":
    main(*sys.argv[1:])
