"""The parts of sections, made in processes and kept: a run that was killed goes on where it was.

What a part found is kept in build/reproduce/ at once, and holds as long as dspkit's code is the same.
"""

from __future__ import annotations

import hashlib
import json
import time
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from .. import files
from . import page

PACKAGE = page.HERE.parent


def code() -> str:
    """A word for the code that results hang on."""
    word = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        word.update(path.read_bytes())
    return word.hexdigest()[:16]


def kept(name: str, part: str) -> Path:
    return files.home("build") / "reproduce" / f"{name}.{part}.json".replace(" ", "_")


def known(name: str, part: str, word: str) -> bool:
    """Was this part made by this very code?"""
    try:
        return bool(json.loads(kept(name, part).read_text(encoding="utf-8"))["code"] == word)
    except (OSError, ValueError, KeyError, TypeError):
        return False


def make(name: str, part: str, word: str) -> float:
    """Run one part and keep what it found."""
    started = time.monotonic()
    data = page.plain(page.section(name).parts[part]())
    seconds = time.monotonic() - started
    told = {"code": word, "seconds": round(seconds, 1), "data": data}
    files.write(kept(name, part), lambda p: p.write_text(json.dumps(told), encoding="utf-8"), overwrite=True)
    return seconds


def collect(name: str, parts: list[str]) -> None:
    """What is kept of these parts becomes the section's results; parts that were not asked for stay."""
    path = page.RESULTS / f"{name}.json"
    old = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for part in parts:
        told = json.loads(kept(name, part).read_text(encoding="utf-8"))
        old[part] = {"seconds": told["seconds"], "data": told["data"]}
    old = {part: old[part] for part in page.section(name).parts if part in old}
    lines = ",\n".join(f"{json.dumps(part)}: {_lines(told)}" for part, told in old.items())
    files.write(path, lambda p: p.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8"), overwrite=True)


def _lines(told: dict[str, Any]) -> str:
    """A line a row, so that one sees what changed."""
    data = told["data"]
    if isinstance(data, list):
        rows = ",\n  ".join(map(json.dumps, data))
        return f'{{"seconds": {told["seconds"]}, "data": [\n  {rows}]}}'
    return json.dumps(told)


def expected(name: str, part: str) -> float:
    """Seconds that it took the last time."""
    try:
        return float(page.results(name)[part]["seconds"])
    except (ValueError, KeyError):
        return 60.0


def reproduce(only: list[str], *, processes: int = 2, long: bool = False, fresh: bool = False) -> list[str]:
    """Make parts that are not known yet, longest first; the names of what failed."""
    word = code()
    wanted = {n: [p for p in page.section(n).parts if long or p not in page.section(n).long] for n in only}
    todo = [(n, p) for n, parts in wanted.items() for p in parts if fresh or not known(n, p, word)]
    todo.sort(key=lambda at: -expected(*at))
    left, failed, started = {at: expected(*at) for at in todo}, [], time.monotonic()
    print(f"{len(todo)} parts to make, {sum(map(len, wanted.values())) - len(todo)} kept", flush=True)
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
