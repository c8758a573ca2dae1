"""A plain `pip install dspkit`: the same simulator without numba, SciPy and pyarrow, and clear errors."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import numpy as np
import pytest
from scipy.special import gammaincinv

import links
from dspkit import apps, run
from dspkit.core.queueing import _gamma_quantile

ROOT = Path(__file__).resolve().parents[2]
WITHOUT = "import sys\nfor name in {names!r}.split(): sys.modules[name] = None\n"
OPTIONAL = "numba llvmlite scipy pyarrow pyspark ipywidgets IPython jupyterlab sklearn skopt torch highspy networkx"


def without_extras(code: str) -> str:
    """Run code in a process in which no library of an extra can be imported, and return what it prints."""
    program = WITHOUT.format(names=OPTIONAL) + code
    ran = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


def test_the_interpreted_simulator_gives_the_results_of_the_compiled_one() -> None:
    """Two execution models: a pipeline with a jump of the load, and a job of micro-batches."""
    code = """
from dspkit import apps, run
for name, steps in (("word_count", 36), ("storm_word_count", 6)):
    history = run("ds2", apps.get(name)(), steps=steps)
    frame = history.application[["throughput", "latency_p50", "latency_p99", "instances"]]
    print(*(value.hex() for value in frame.to_numpy(float).ravel()))
"""
    for line, (name, steps) in zip(
        without_extras(code).splitlines(), (("word_count", 36), ("storm_word_count", 6)), strict=True
    ):
        history = run("ds2", apps.get(name)(), steps=steps)
        ours = history.application[["throughput", "latency_p50", "latency_p99", "instances"]].to_numpy(float).ravel()
        theirs = [float.fromhex(word) if word != "nan" else np.nan for word in line.split()]
        np.testing.assert_allclose(theirs, ours, rtol=1e-9)


def test_an_error_names_the_extra_that_is_missing() -> None:
    code = """
import warnings
warnings.simplefilter("error")
import dspkit
from dspkit import DspkitError, apps, policies, run, workload
from dspkit.plots import timeline
app = apps.word_count()
history = run("hpa", app, steps=2)
timeline(history)
assert "autrascale" not in policies.available() and "ds2" in policies.available()
for attempt in (
    lambda: history.save("/nowhere/h"),
    lambda: workload.load("flights_2013"),
    lambda: policies.get("autrascale"),
    lambda: policies.AuTraScale,
    lambda: dspkit.simulator.fit,
    lambda: dspkit.bo,
    lambda: dspkit.advise,
    lambda: run("ds2", app.simulator(engine="records"), steps=1),
    lambda: app.spark(),
    lambda: dspkit.ui.Explorer,
):
    try:
        attempt()
    except DspkitError as error:
        print(error.fix)
"""
    fixes = without_extras(code).splitlines()
    assert [line.split("'")[1].split("]")[0] for line in fixes] == [
        *["dspkit[standard"] * 8,
        "dspkit[spark",
        "dspkit[notebooks",
    ]


@pytest.mark.parametrize("shape", [1e-3, 0.05, 0.3, 0.7, 1.0, 2.5, 17.0, 400.0, 1e4, 1e6])
def test_our_gamma_quantiles_are_those_of_scipy(shape: float) -> None:
    for share in (1e-6, 1e-3, 0.1, 0.5, 0.9, 0.95, 0.99, 0.999, 0.9999):
        expected = float(gammaincinv(shape, share))
        if expected > 1e-300:
            assert _gamma_quantile(shape, share) == pytest.approx(expected, rel=1e-8), share


def test_gamma_quantiles_at_the_ends() -> None:
    assert _gamma_quantile(2.0, 0.0) == 0.0
    assert _gamma_quantile(2.0, 1.0) == np.inf
    assert np.isnan(_gamma_quantile(2.0, 1.5))


@pytest.mark.slow
def test_built_files_install_and_run_on_a_clean_path_without_a_network(tmp_path: Path) -> None:
    """The sdist and the wheel built from it, checked, installed from downloaded files only, and run."""
    dist, wheels = tmp_path / "dist", tmp_path / "wheels"
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]

    def call(*command: object, cwd: Path = tmp_path, **variables: str) -> str:
        env = os.environ | variables
        env = {k: v for k, v in env.items() if k not in ("PYTHONPATH", "DSPKIT_HOME")}
        ran = subprocess.run([*map(str, command)], cwd=cwd, env=env, capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-3000:]
        return ran.stdout

    linked = ROOT / ".cache" / f"links-{os.getpid()}"  # as tests of other checkouts leave them: not followed
    linked.mkdir(parents=True)
    try:
        (linked / "data").symlink_to(ROOT / "data")
        call(sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, ROOT)
    finally:
        shutil.rmtree(linked)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    call(sys.executable, "-m", "twine", "check", "--strict", wheel, sdist)
    assert wheel.stat().st_size < 5e6
    call(*pip, "download", "--only-binary=:all:", "-c", _versions(tmp_path), "-d", wheels, wheel)
    dependencies = sum(file.stat().st_size for file in wheels.iterdir() if not file.name.startswith("dspkit"))
    assert dependencies < 60e6, "a plain installation is light"
    off = {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "", "PIP_CONFIG_FILE": os.devnull, "http_proxy": "http://127.0.0.1:9"}
    off["https_proxy"] = off["http_proxy"]
    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    call(python, "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels, wheel, **off)
    call(python, "-m", "pip", "check", **off)
    code = """
import dspkit, sys
assert "bare" in dspkit.__file__, dspkit.__file__
history = dspkit.run("ds2", dspkit.apps.word_count(), steps=5)
print(dspkit.__version__, len(history), dspkit.report.from_history(history, "run.html").stat().st_size > 1e6)
"""
    version, steps, written = call(python, "-c", code, **off).split()
    assert (steps, written) == ("5", "True")
    script = tmp_path / "bare" / "bin" / "dspkit"
    assert call(script, "--version", **off) == f"dspkit {version}\n"
    assert "kept as they are" in call(script, "lab", "course", "--no-open", **off)
    assert (tmp_path / "course" / "notebooks" / "00_start.ipynb").is_file()
    assert (tmp_path / "course" / "data" / "recorded_job.csv").is_file()
    assert not list((tmp_path / "course").rglob("*.pyc"))
    assert list((tmp_path / "bare").glob("lib/python*/site-packages/dspkit/workload/data/flights_2013.parquet"))
    pages = [
        page for page in (tmp_path / "course").rglob("*.md") if "reproduction" not in page.parts
    ]  # parts of a page
    assert len(pages) > 50
    for page in pages:
        assert [to for to in links.relative(page.read_text()) if not (page.parent / to).exists()] == [], page
    code = "from importlib.metadata import metadata; print(metadata('dspkit').get_payload())"
    shown = call(python, "-c", code, **off)
    assert links.relative(shown) == []
    assert f"{links.repository()}/blob/main/docs/environment.md" in shown


def _versions(folder: Path) -> Path:
    """The lock without its hashes, which pip cannot check for a file of our own."""
    text = (ROOT / "constraints.txt").read_text()
    lines = [line.rstrip(" \\") for line in text.splitlines() if line[:1].isalnum()]
    path = folder / "versions.txt"
    path.write_text("\n".join(line for line in lines if not line.startswith("torch")))
    return path
