"""The recorded job of notebook 13: what data/README.md says of it, and what advice makes of it."""

import hashlib
import re
import runpy
from pathlib import Path

import pytest

from dspkit import advise
from dspkit.loaders import Table

DATA = Path(__file__).parents[2] / "data"
COLUMNS = {
    "t": "time", "operator": "task", "parallelism": "subtasks", "input_rate": "records_in_per_s",
    "processing_rate": "processed_per_s", "output_rate": "records_out_per_s",
    "utilisation": ("busy_ms_per_s", "ms/s"), "backlog": "pending",
}  # fmt: skip


@pytest.fixture(scope="module")
def made():
    return runpy.run_path(str(DATA / "recorded_job.py"))


def test_the_file_is_what_its_script_makes_and_its_row_says(made, tmp_path):
    content = (DATA / "recorded_job.csv").read_bytes()
    (row,) = re.findall(r"(?m)^\| `recorded_job\.csv` .*", (DATA / "README.md").read_text())
    assert hashlib.sha256(content).hexdigest() in row
    again = made["write"](tmp_path / "again.csv").read_text().splitlines()
    ours = content.decode().splitlines()
    assert len(again) == len(ours)
    for a, b in zip(again, ours, strict=True):  # up to the last digit, which machines may round apart
        for x, y in zip(a.split(","), b.split(","), strict=True):
            assert x == y or abs(float(x) - float(y)) <= 1e-3 * abs(float(y)) + 1, (a, b)


def test_the_advice_is_the_plants_truth_and_every_fault_is_counted(made):
    job = Table(DATA / "recorded_job.csv", columns=COLUMNS, topology=made["TOPOLOGY"])
    advice = advise(job, target_latency_s=0.5, engine="flink")
    plant, rate = made["PLANT"].services, 1750
    shares = {"read": 1, "parse": 1, "enrich": 0.4, "score": 0.4, "sessions": 1, "store": 0.5}
    for name, asked in ((n, share * rate) for n, share in shares.items()):
        true = asked * plant[name].seconds(advice.needs.parallelism[name]) / advice.needs.parallelism[name]
        load = advice.needs.load(name)
        assert load.value == pytest.approx(true, rel=0.03), name
    assert advice.bottleneck == "score"
    assert advice["ds2"].says == "score 2 → 3"
    assert sum(advice.problems.values()) == 9  # two gaps, four silent, NaN, negative, sent twice
