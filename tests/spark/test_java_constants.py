"""Numbers and names that stand both in the jar's sources and in Python are the same."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from dspkit.spark import TraceSource, errors, metering
from dspkit.spark.dataflow import exchange, state
from dspkit.spark.runtime import supervisor
from dspkit.workload import Constant

JAVA = Path(errors.__file__).parent / "jvm"
TYPES = {"IntegerType": "int", "BinaryType": "binary"}
# file, pattern whose one group is Java's value, Python's value
SHARED: dict[str, tuple[str, str, Any]] = {
    "placeholders of the first job": ("Job", r"\bFIRST = ([\d_]+)", supervisor._FIRST_PLACE),
    "placeholders of a job": ("Job", r"\bSTRIDE = ([\d_]+)", supervisor._STRIDE),
    "epochs whose files stay": ("Job", r"\bKEPT = ([\d_]+)", state.KEPT),
    "records before the first reading": ("Job", r"\bcredit = new AtomicLong\(([\d_]+)\)", supervisor._FIRST_RECORDS),
    "records of the first frames": ("Job", r"\bframeRecords = ([\d_]+);", supervisor._LEAST),
    "records of an executor's first frames": ("Lease", r"\bframeRecords = ([\d_]+);", supervisor._LEAST),
    "partitions of a trace": ("TraceReader", r'"partitions", ([\d_]+)\)', TraceSource(Constant(1)).partitions),
    "property of an epoch's plan": ("Job", r'setLocalProperty\("([^"]+)", plan\)', state.PROPERTY),
    "receiver of the last row": ("Gather", r"\bEND = (-?[\d_]+);", exchange.END),
    "bits of a frame's sender": ("Links", r"\bWORKERS = ([\d_]+);", exchange.OPERATOR.bit_length()),
    "variable with the worker's name": ("Pings", r'getenv\("([^"]+)"\)', metering.WORKER),
    "mark of an operator's error": ("Select", r'\bFAILED = "([^"]*)"', errors.FAILED),
}


def source(name: str) -> str:
    return (JAVA / f"{name}.java").read_text(encoding="utf-8")


@pytest.mark.parametrize("what", SHARED)
def test_a_shared_constant_has_one_value(what: str) -> None:
    name, pattern, ours = SHARED[what]
    (theirs,) = re.findall(pattern, source(name))
    assert (int(theirs.replace("_", "")) if isinstance(ours, int) else theirs) == ours


def test_the_jar_writes_the_columns_that_python_reads() -> None:
    columns = re.findall(r'\.add\("(\w+)", DataTypes\.(\w+)\)', source("TraceSource"))
    assert ", ".join(f"{name} {TYPES[kind]}" for name, kind in columns) == exchange.WIRE


def test_the_jar_stamps_records_as_python_does() -> None:
    assert tuple(re.findall(r'\.add\("(\w+)", DataTypes\.LongType\)', source("Select"))) == exchange.STAMPS


def test_the_format_that_python_asks_for_is_the_one_that_the_jar_offers() -> None:
    (offered,) = re.findall(r'String shortName\(\) \{\s*return "([^"]+)"', source("TraceSource"))
    asked = re.findall(r'readStream\.format\("([^"]+)"\)', Path(supervisor.__file__).read_text(encoding="utf-8"))
    assert asked == [offered]


def test_every_constant_that_python_repeats_by_comment_is_compared_here() -> None:
    noting = re.compile(r"^(\w+)\b.*# .*\bas in (\w+)\.java", re.MULTILINE)
    noted = {
        (path.stem, name, java)
        for path in JAVA.parent.rglob("*.py")
        for name, java in noting.findall(path.read_text(encoding="utf-8"))
    }
    assert noted == {
        ("supervisor", "_FIRST_PLACE", "Job"),
        ("supervisor", "_FIRST_RECORDS", "Job"),
        ("exchange", "END", "Gather"),
        ("exchange", "OPERATOR", "Links"),
        ("metering", "WORKER", "Pings"),
        ("state", "KEPT", "Job"),
    }
    assert all(java in {file for file, _, _ in SHARED.values()} for _, _, java in noted)
