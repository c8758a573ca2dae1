"""`python -m benchmarks [TOPIC ...]`: measure every claim, print one line each, write build/bench.json."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import pkgutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import benchmarks
from benchmarks import Claim

RESULTS = Path(__file__).resolve().parent.parent / "build" / "bench.json"


def topics() -> list[str]:
    return sorted(m.name for m in pkgutil.iter_modules(benchmarks.__path__) if not m.name.startswith("_"))


def claims(topic: ModuleType) -> Iterator[tuple[str, Callable[[], Claim]]]:
    """Return the claims of a topic: its own public functions annotated to return a Claim."""
    for name, function in inspect.getmembers(topic, inspect.isfunction):
        ours = function.__module__ == topic.__name__ and not name.startswith("_")
        if ours and function.__annotations__.get("return") in (Claim, "Claim"):
            yield f"{topic.__name__.rpartition('.')[2]}.{name}", function


def measure(name: str, function: Callable[[], Claim]) -> tuple[str, dict[str, Any] | None]:
    """Return the line to print and the entry to keep; no entry if the claim could not be measured."""
    started = time.perf_counter()
    try:
        claim = function()
    except Exception as error:  # one broken claim must not hide the others
        return f"{name:34} FAILED after {time.perf_counter() - started:.1f} s: {type(error).__name__}: {error}", None
    sign, verdict = "≥" if claim.better == "higher" else "≤", "ok" if claim.holds else "short"
    line = f"{name:34} {claim.value:>10.4g} {claim.unit:9} {sign} {claim.target:<9.4g} {verdict:6}"
    told = [f"{k} {v:,.4g}" for k, v in claim.detail.items() if isinstance(v, int | float) and not isinstance(v, bool)]
    more = f"  ({', '.join(told[:8])})" if told else ""
    entry = {"value": claim.value, "unit": claim.unit, "target": claim.target, "better": claim.better}
    entry |= {"ok": claim.holds, "detail": dict(claim.detail)}
    return f"{line} {time.perf_counter() - started:6.1f} s{more}", entry


def keep(entries: dict[str, dict[str, Any]], measured: Sequence[str]) -> None:
    """Replace the former entries of these topics, atomically."""
    try:
        former = json.loads(RESULTS.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        former = {}
    others = {name: entry for name, entry in former.items() if name.partition(".")[0] not in measured}
    RESULTS.parent.mkdir(exist_ok=True)
    fresh = RESULTS.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps({**others, **entries}, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    fresh.replace(RESULTS)


def main(asked: Sequence[str]) -> int:
    """Measure these topics, or all; exit code 1 if a claim could not be measured. Missing a target is a result."""
    if unknown := sorted(set(asked) - set(topics())):
        print(f"got {', '.join(unknown)}; expected one of: {', '.join(topics())}", file=sys.stderr)
        return 2
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is loaded: claims are for one thread
    entries, broken, measured = {}, 0, list(asked) or topics()
    for topic in measured:
        for name, function in claims(importlib.import_module(f"benchmarks.{topic}")):
            line, entry = measure(name, function)
            print(line, flush=True)
            if entry is None:
                broken += 1
            else:
                entries[name] = entry
    keep(entries, measured)
    short = sum(not entry["ok"] for entry in entries.values())
    print(f"{len(entries)} measured, {short} short, {broken} failed; written to {os.path.relpath(RESULTS)}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
