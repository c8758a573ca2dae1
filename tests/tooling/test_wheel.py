"""The built wheel alone, without the checkout: recorded loads, its files, and the first cells of notebook 00."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files of a wheel built from this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def run(unpacked: Path, code: str) -> str:
    """Run code with the wheel's dspkit, in a folder outside the checkout."""
    code = f"import dspkit; assert dspkit.__file__.startswith({str(unpacked)!r}), dspkit.__file__\n{code}"
    env = os.environ | {"PYTHONPATH": str(unpacked)}
    command = [sys.executable, "-c", code]
    ran = subprocess.run(command, cwd=unpacked.parent, env=env, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return ran.stdout


@pytest.mark.slow
def test_the_wheel_brings_its_data_and_none_of_the_studies(unpacked: Path) -> None:
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert {"dspkit/py.typed", "dspkit/core/references.bib", "dspkit/spark/jvm/dspkit-spark.jar"} <= files
    assert not [name for name in files if name.startswith(("reproduction", "tests", "benchmarks"))]
    out = run(unpacked, "from dspkit import workload; print(workload.names(), workload.load('flights_2013').total > 0)")
    assert out == "('flights_2013',) True\n"


@pytest.mark.slow
def test_the_wheel_runs_the_first_cells_of_notebook_00(unpacked: Path) -> None:
    notebook = json.loads((ROOT / "notebooks" / "00_start.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    first = cells[: 1 + next(i for i, cell in enumerate(cells) if "run(" in cell)]
    run(unpacked, "\n".join(first))
