"""Compile the simulator's and the solvers' kernels, so that the first Start in a notebook answers at once.

`make setup`, `make lab` and `make app` call this with the Python of .venv when sources have changed; numba keeps the
machine code on disk, under the contents of the sources (dspkit/core/jit.py).
"""

import hashlib
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def sources() -> str:
    """Return a hash of all sources that kernels are compiled from."""
    found = hashlib.sha256(sys.version.encode())
    for path in sorted((ROOT / "dspkit").rglob("*.py")):
        text = path.read_bytes()
        if b"jit" in text or "simulator" in path.parts:
            found.update(path.name.encode() + text)
    return found.hexdigest()


def main() -> None:
    from dspkit import apps, placement, run
    from dspkit.comparison import oracle  # noqa: F401  its kernel is compiled with the fluid engine's
    from dspkit.placement import Weights

    app = apps.word_count()
    batches = replace(app, plant=replace(app.plant, execution="micro-batch"))
    for engine in ("fluid", "records"):
        for each in (app, batches):
            run("ds2", each.simulator(engine=engine, scale=0.01 if engine == "records" else 1.0), steps=3)
    app.sweep({"count": (1, 2), "scale": (0.1, 0.2)}, duration_s=20)
    problem = placement.scenario("replicated", 36, seed=2)
    placement.solve(problem, Weights(1 / 3, 1 / 3, 1 / 3))
    for name in ("local_search", "tabu_search"):
        placement.heuristic(name)(problem, Weights(1 / 3, 1 / 3, 1 / 3))


if __name__ == "__main__":
    main()
