"""Live jobs on machines that are set up oddly: they run, or one sentence says why not."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = """
import os, sys, time
import dspkit, live
assert dspkit.__file__.startswith(os.environ["PLACE"]), dspkit.__file__
from dspkit.core.errors import DspkitError
try:
    with live.job(500, 50, spark=None, master="local[4]", checkpoint=sys.argv[1]) as job:
        live.works(job)
        job.deploy(job.deployment.scaled({"count": 2}))
        live.works(job)
    print("exact", live.each_once(sys.argv[1]) > 0)
except DspkitError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(("name", "locale"), [("a,b #c%20d é", "C"), ("plain [x]{y}", "C.UTF-8")])
def test_a_job_runs_from_any_path_with_a_narrow_umask_and_without_a_home(
    name: str, locale: str, tmp_path: Path
) -> None:
    """The package, the checkpoint and the temporary files all lie below such a path."""
    place = tmp_path / name
    place.mkdir()
    for part in ("dspkit", "tests/live.py"):
        target = place / part
        target.parent.mkdir(exist_ok=True)
        (shutil.copytree if (ROOT / part).is_dir() else shutil.copy)(ROOT / part, target)
    for part in ("tmp", "checkpoint"):
        (place / part).mkdir()
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG", "HOME", "JAVA_HOME", "PYSPARK"))}
    env |= {"LC_ALL": locale, "PLACE": str(place), "TMPDIR": str(place / "tmp"), "DSPKIT_HOME": str(place)}
    env |= {"PYTHONPATH": os.pathsep.join(map(str, (place, place / "tests")))}
    ran = subprocess.run(
        [sys.executable, "-c", JOB, str(place / "checkpoint")],
        env=env, cwd=place, capture_output=True, text=True, timeout=900, check=False, umask=0o077,
    )  # fmt: skip
    assert ran.stdout == "exact True\n", ran.stdout + ran.stderr
    assert (place / "checkpoint" / "dspkit" / "log" / "spark.log").is_file()


@pytest.mark.spark
@pytest.mark.slow
def test_an_executor_of_a_cluster_is_found_from_a_path_with_a_comma(tmp_path: Path) -> None:
    place = tmp_path / "a,b"
    shutil.copytree(ROOT / "dspkit", place / "dspkit")
    shutil.copytree(ROOT / "tests", place / "tests")
    code = JOB.replace('"local[4]"', "SparkCluster.local(1, 4, memory='512m'), owns_master=True")
    env = os.environ | {"PLACE": str(place), "PYTHONPATH": os.pathsep.join(map(str, (place, place / "tests")))}
    command = [sys.executable, "-c", "from dspkit.spark import SparkCluster\n" + code, str(tmp_path / "checkpoint")]
    ran = subprocess.run(command, env=env, cwd=place, capture_output=True, text=True, timeout=900, check=False)
    assert ran.stdout == "exact True\n", ran.stdout + ran.stderr


def test_too_few_open_files_are_one_sentence_before_java_starts(tmp_path: Path) -> None:
    code = (
        "from dspkit.spark import ensure_java, JavaError\ntry: ensure_java()\nexcept JavaError as error: print(error)"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)),
    )  # fmt: skip
    assert ran.stdout.startswith("got a limit of 64 open files per process")
    assert "ulimit -n 4096" in ran.stdout
