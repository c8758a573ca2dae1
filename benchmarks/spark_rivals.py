"""The job of `spark_rates` beside bytewax, plain processes and stock Spark, each in a process of its own.

They run in turns. Records per CPU second hold on a busy machine; records/s and latency do so on a quiet one only. What
they promise differs: dspkit and stock Spark count each record once through failures, bytewax with recovery does so for
its state; without recovery, and in plain processes, a failure loses what was counted. bytewax is not among the
requirements: `pip install bytewax` (0.21.1 was used) into the environment first.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from functools import cache
from pathlib import Path

from benchmarks import Claim, _four, _rivals

FLAT_OUT, LIGHT = 2_000_000.0, 10_000.0  # records/s offered
_STOCK_FLAT_OUT = 200_000.0  # its rate source makes what was offered, and a batch of it must end within the window
SECONDS, TURNS = 8.0, 2
_LIMIT_S = 180.0
_STOCK = ("map_in_arrow", "transform_with_state")
_ROOT = Path(__file__).resolve().parent.parent


@cache
def _measured() -> dict[tuple[str, float], dict[str, float]]:
    """Return the medians of all turns by rival and rate; a rival that does not end in time is left out."""
    found: dict[tuple[str, float], list[dict[str, float]]] = {}
    for _ in range(TURNS):
        for name in _rivals.RIVALS:
            for rate in (FLAT_OUT, LIGHT):
                if (figures := _run(name, rate)) is not None:
                    found.setdefault((name, rate), []).append(figures)
    return {at: {each: statistics.median(e[each] for e in turns) for each in turns[0]} for at, turns in found.items()}


def _run(name: str, per_s: float) -> dict[str, float] | None:
    offered = min(per_s, _STOCK_FLAT_OUT) if name in _STOCK else per_s
    command = [sys.executable, "-m", "benchmarks._rivals", name, str(offered), str(SECONDS)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=_LIMIT_S, cwd=_ROOT, env=environment, check=True
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        said = (error.stderr or b"").decode() if isinstance(error.stderr, bytes) else error.stderr or ""
        print(f"{name} at {offered:g}/s: {type(error).__name__} {said.strip()[-300:]}", file=sys.stderr)
        return None
    figures: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return figures


def _all(rate: float, figure: str) -> dict[str, float]:
    found = {name: _measured()[name, rate][figure] for name in _rivals.RIVALS if (name, rate) in _measured()}
    return {"load": _four.load()} | found


def _ours(rate: float, figure: str) -> float:
    return _measured()["dspkit", rate][figure]


def per_cpu_s_over_bytewax_with_recovery() -> Claim:
    """Records per CPU second flat out, over those of bytewax with recovery."""
    theirs = _measured()["bytewax_with_recovery", FLAT_OUT]["per_cpu_s"]
    return Claim(_ours(FLAT_OUT, "per_cpu_s") / theirs, "x", 1.0, detail=_all(FLAT_OUT, "per_cpu_s"))


def per_s_over_map_in_arrow() -> Claim:
    """Records/s flat out, over those of stock micro-batches with mapInArrow and Spark's own count."""
    theirs = _measured()["map_in_arrow", FLAT_OUT]["per_s"]
    return Claim(_ours(FLAT_OUT, "per_s") / theirs, "x", 1.0, detail=_all(FLAT_OUT, "per_s"))


def latency_p50_at_10k_ms() -> Claim:
    """Median age of records where they are counted, at 10,000 records/s."""
    return Claim(_ours(LIGHT, "p50"), "ms", 20.0, "lower", _all(LIGHT, "p50"))


def latency_p99_at_10k_ms() -> Claim:
    """The 99th percentile of the same."""
    return Claim(_ours(LIGHT, "p99"), "ms", 60.0, "lower", _all(LIGHT, "p99"))


def cores_at_10k() -> Claim:
    """Cores that the whole job uses at 10,000 records/s."""
    return Claim(_ours(LIGHT, "cores"), "cores", 0.2, "lower", _all(LIGHT, "cores"))
