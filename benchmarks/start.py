"""The start-up time: of `import dspkit`, and of a `make` target with a ready environment."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import Claim, side_by_side

ROOT = Path(__file__).resolve().parent.parent


def _fresh(*args: str) -> Callable[[], object]:
    """Return a function that runs a new Python process with these arguments."""
    return lambda: subprocess.run([sys.executable, *args], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def import_s() -> Claim:
    """Seconds of a new process that imports dspkit, beside one that imports pandas and one without imports."""
    codes = {"dspkit": "import dspkit", "pandas": "import pandas", "nothing": "pass"}
    seconds = side_by_side({name: _fresh("-c", code) for name, code in codes.items()}, repeats=9)
    return Claim(seconds["dspkit"], "s", target=0.3, better="lower", detail=seconds)


def second_run_s() -> Claim:
    """Seconds of a `make` target until it starts its command, in a ready environment."""
    if not (ROOT / ".venv" / "dspkit-stamp.json").is_file():
        raise RuntimeError("got an environment that dev.py did not make; expected .venv; run this with `make bench`")
    seconds = side_by_side({"setup": _fresh("dev.py", "setup"), "nothing": _fresh("-c", "pass")})
    return Claim(seconds["setup"], "s", target=3.0, better="lower", detail=seconds)
