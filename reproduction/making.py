"""Computation of the parts of sections in processes, with a cache from which an interrupted run continues.

The results of a part are written to build/reproduce/ at once, and are valid as long as dspkit's code is unchanged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from dspkit.core import DspkitError, NotFoundError, caching, files

from . import page


def code() -> str:
    """Return a key of the code that results depend on: all of dspkit, and this package."""
    return caching.package_key(__file__, caching.__file__)[:16]


def kept(name: str, part: str) -> Path:
    """Return the file of a part's cached results."""
    return files.home("build") / "reproduce" / f"{name}.{part}.json".replace(" ", "_")


def known(name: str, part: str, word: str) -> bool:
    """Return whether the cached results of a part are of the current code."""
    try:
        return bool(json.loads(kept(name, part).read_text(encoding="utf-8"))["code"] == word)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make(name: str, part: str, word: str) -> float:
    """Compute one part and cache its results; return the seconds that it took."""
    started = time.monotonic()
    data = page.plain(page.section(name).parts[part]())
    seconds = time.monotonic() - started
    told = {"code": word, "seconds": round(seconds, 1), "data": data}
    files.write_atomically(kept(name, part), lambda p: p.write_text(json.dumps(told), encoding="utf-8"), overwrite=True)
    return seconds


def collect(name: str, parts: list[str]) -> None:
    """Write the cached results of these parts into the section's results; other parts are unchanged."""
    path = page.HERE / name / "results.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for part in parts:
        told = json.loads(kept(name, part).read_text(encoding="utf-8"))
        old[part] = {"seconds": told["seconds"], "data": told["data"]}
    old = {part: old[part] for part in page.section(name).parts if part in old}
    lines = ",\n".join(f"{json.dumps(part)}: {_lines(told)}" for part, told in old.items())
    files.write_atomically(path, lambda p: p.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8"), overwrite=True)


def _lines(told: dict[str, Any]) -> str:
    """Return one line per row, for readable diffs."""
    data = told["data"]
    if isinstance(data, list):
        rows = ",\n  ".join(map(json.dumps, data))
        return f'{{"seconds": {told["seconds"]}, "data": [\n  {rows}]}}'
    return json.dumps(told)


def expected(name: str, part: str) -> float:
    """Return the seconds that the part took the last time."""
    try:
        return float(page.results(name)[part]["seconds"])
    except (DspkitError, ValueError, KeyError):
        return 60.0


def reproduce(
    only: list[str], *, processes: int = 2, long: bool = False, fresh: bool = False, parts: Collection[str] = ()
) -> list[str]:
    """Compute the parts that are not cached, longest first; return the names of failed ones.

    With `parts`, only those of these names; the others keep their committed results.
    """
    word = code()
    wanted = {n: [p for p in page.section(n).parts if long or p not in page.section(n).long] for n in only}
    if parts:
        every = sorted({p for n in only for p in page.section(n).parts})
        if unknown := [p for p in parts if p not in every]:
            raise NotFoundError(f"part {unknown[0]!r}", expected=f"one of {', '.join(every)}", fix="choose one")
        wanted = {n: [p for p in page.section(n).parts if p in parts] for n in only}
    todo = [(n, p) for n, parts in wanted.items() for p in parts if fresh or not known(n, p, word)]
    todo.sort(key=lambda at: -expected(*at))
    left, failed, started = {at: expected(*at) for at in todo}, [], time.monotonic()
    print(f"{len(todo)} parts to compute, {sum(map(len, wanted.values())) - len(todo)} cached", flush=True)
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        jobs = {pool.submit(make, *at, word): at for at in todo}
        for done in as_completed(jobs):
            at = jobs[done]
            del left[at]
            error = done.exception()
            said = f"{done.result():.0f} s" if error is None else f"failed: {error}"
            failed += [] if error is None else [": ".join(at)]
            more = f"about {sum(left.values()) / processes / 60:.0f} min left" if left else "all"
            print(f"{time.monotonic() - started:5.0f} s  {' '.join(at)}: {said}; {more}", flush=True)
    for name, parts in wanted.items():
        collect(name, [p for p in parts if f"{name}: {p}" not in failed])
    return failed
