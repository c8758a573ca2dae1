"""Maintainability of the code: modules, readers, cycles, names, documentation, and files that a change touches."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks import Claim, _source

# Every Python process below writes the name of each file of dspkit the first time that it runs a function of it (code
# flag 1, which modules and classes lack), unless an import runs it: a new worker imports much that it never calls.
_WATCH = """
import os, sys, threading
_out = os.environ.get("DSPKIT_OPENED")
if _out:
    _seen = set()
    def _watch(frame, event, arg):
        name = frame.f_code.co_filename
        if event == "call" and name not in _seen and "/dspkit/" in name and os.path.exists(_out + ".on"):
            caller = frame if frame.f_code.co_flags & 1 else None
            while caller and "importlib._bootstrap" not in caller.f_code.co_filename:
                caller = caller.f_back
                if caller is None:
                    _seen.add(name)
                    with open(_out, "a") as file:
                        file.write(name + "\\n")
    sys.setprofile(_watch)
    threading.setprofile(_watch)
"""
_SIMULATED = """
import os, sys
from pathlib import Path
import dspkit
from dspkit.policies import DS2
backend = dspkit.apps.word_count().simulator()
steps = dspkit.core.control_loop(DS2(), backend, steps=60)
on = Path(os.environ["DSPKIT_OPENED"] + ".on")
while True:
    on.touch()
    opened = Path(os.environ["DSPKIT_OPENED"])
    opened.write_text("")
    if next(steps).rescaled:
        break
on.unlink()
"""
_LIVE = """
import os, time
from pathlib import Path
import dspkit
app = dspkit.apps.word_count()
with app.spark() as job:
    for _ in range(4):
        snapshot = job.observe()
    wanted = {name: 1 for name in app.topology.order} | {app.topology.order[1]: 2}
    on = Path(os.environ["DSPKIT_OPENED"] + ".on")
    on.touch()
    job.deploy(job.deployment.scaled(wanted))
    snapshot = job.observe()
    on.unlink()
    assert snapshot.deployment.parallelism[app.topology.order[1]] == 2
"""


def modules() -> Claim:
    """Python files of the package and its subpackages."""
    return Claim(len(_source.modules()), "files", target=290, better="lower")


def single_readers() -> Claim:
    """Modules that only one sibling imports: split off for their size, unless they are a concept of their own."""
    found = _source.single_readers()
    return Claim(len(found), "files", target=15, better="lower", detail=found)


def import_cycles() -> Claim:
    """Groups of modules that import each other at run time, also inside functions."""
    found = _source.cycles()
    return Claim(len(found), "cycles", target=0, better="lower", detail={str(i): g for i, g in enumerate(found)})


def repeated_class_names() -> Claim:
    """Names of public classes that are defined in more than one module."""
    found = _source.repeated_classes()
    return Claim(len(found), "names", target=10, better="lower", detail={k: ", ".join(v) for k, v in found.items()})


def undocumented_callables() -> Claim:
    """Public callables without a Parameters section or without a runnable example."""
    found = _source.undocumented()
    return Claim(len(found), "names", target=0, better="lower", detail=found)


def files_of_a_simulated_rescale() -> Claim:
    """Files whose functions run in one window with a rescale under DS2; compiled functions run as plain Python."""
    return _opened(_SIMULATED, target=18, env={"NUMBA_DISABLE_JIT": "1"})


def files_of_a_live_rescale() -> Claim:
    """Files whose functions run from deploy() to the next snapshot, in the driver and in Spark's workers."""
    return _opened(_LIVE, target=16)


def format_skips() -> Claim:
    """Places that are excluded from formatting."""
    return Claim(_source.format_skips(), "places", target=60, better="lower")


def longest_parameter_list() -> Claim:
    """The most parameters of a function."""
    found = _source.parameter_lists()
    worst = sorted(found, key=lambda name: -found[name])[:5]
    return Claim(found[worst[0]], "params", target=20, better="lower", detail={name: found[name] for name in worst})


def lines_in_the_wheel() -> Claim:
    """Lines of Python in the package, docstrings and blank lines included."""
    lines = {n: len(p.read_text(encoding="utf-8").splitlines()) for n, p in _source.modules().items()}
    return Claim(sum(lines.values()), "lines", target=46_000, better="lower")


def _opened(code: str, *, target: int, env: dict[str, str] | None = None) -> Claim:
    """Run `code` with all child processes traced, and count the files of dspkit that it executed."""
    with tempfile.TemporaryDirectory(prefix="dspkit-") as folder:
        Path(folder, "sitecustomize.py").write_text(_WATCH, encoding="utf-8")
        opened = Path(folder, "opened")
        paths = [folder, str(_source.ROOT), os.environ.get("PYTHONPATH", "")]
        watched = os.environ | (env or {}) | {"PYTHONPATH": os.pathsep.join(paths), "DSPKIT_OPENED": str(opened)}
        ran = subprocess.run([sys.executable, "-c", code], env=watched, capture_output=True, text=True, check=False)
        if ran.returncode:
            raise RuntimeError(ran.stderr.strip()[-500:])
        names = {Path(line).relative_to(_source.PACKAGE).as_posix() for line in opened.read_text().splitlines()}
    return Claim(len(names), "files", target=target, better="lower", detail={"files": ", ".join(sorted(names))})
