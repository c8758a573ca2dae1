"""Stored searches on chains of queues: one row per way, chain and seed, made chain by chain and never twice.

`python -m benchmarks._bo_results --chains 60 --seeds 10 --minutes 30` makes missing rows, chain by chain, for as long
as that, and can be stopped at any time; `--ways` names some. Rows are in `benchmarks/results/bo_quality.csv`. A row
holds for one version of its library, ours for one text of `dspkit/bo` (without docstrings and comments); others are
made again.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import math
import time
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from statistics import fmean
from typing import NamedTuple, get_type_hints

import numpy as np

from benchmarks import _bo_chains as chains
from dspkit import bo

PATH = Path(__file__).parent / "results" / "bo_quality.csv"
FIRST = 100  # chains 0 to 23 served to choose the settings of our search
CLOSE = 0.02  # share of the best score
NOISE = 0.05  # of a measured log latency, for odd seeds; even ones measure exactly


class Row(NamedTuple):
    """One search: its regrets of F after 10, 20 and 30 runs, runs until within 2 %, what it keeps, CPU seconds."""

    way: str
    version: str
    chain: int
    seed: int
    regret_10: float
    regret_20: float
    regret_30: float
    runs: int
    kept_regret: float
    kept_misses: int
    cpu_s: float


@cache
def version(way: str) -> str | None:
    """Return the version of a way's library; None if it is not installed."""
    library = chains.LIBRARIES.get(way.partition(" ")[0])
    if library:
        try:
            return metadata.version(library)
        except metadata.PackageNotFoundError:
            return None
    text = "".join(_code(path) for path in sorted(Path(bo.__file__).parent.glob("*.py")))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _code(path: Path) -> str:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            node.body = body[1:]  # type: ignore[attr-defined]
    return ast.dump(tree)


def search(way: str, number: int, seed: int) -> Row:
    """Run one search of 30 runs."""
    chain = chains.Chain(number, seed, NOISE * (seed % 2))
    began = time.process_time()
    regrets, kept = chain.regrets(*chains.WAYS[way](chain))
    spent = time.process_time() - began
    runs = next((i for i, r in enumerate(regrets, 1) if r <= CLOSE * chain.best), chains.RUNS + 1)
    missed = chain.latency_s(kept) > chain.target_latency_s * (1 + 1e-9)
    a, b, c, kept_regret = (
        round(r, 6) for r in (regrets[9], regrets[19], regrets[29], chain.best - chain.true_score(kept))
    )
    return Row(way, version(way) or "", number, seed, a, b, c, runs, kept_regret, int(missed), round(spent, 2))


def stored() -> dict[tuple[str, int, int], Row]:
    """Return the rows that hold, by way, chain and seed."""
    if not PATH.exists():
        return {}
    with PATH.open(encoding="utf-8", newline="") as file:
        kinds = get_type_hints(Row).values()
        made = [Row(*(k(v) for k, v in zip(kinds, row, strict=True))) for row in list(csv.reader(file))[1:]]
    return {(r.way, r.chain, r.seed): r for r in made if r.version == (version(r.way) or r.version)}


def save(rows: Iterable[Row]) -> None:
    """Write all rows, sorted, in one step."""
    PATH.parent.mkdir(exist_ok=True)
    fresh = PATH.with_suffix(".part")
    with fresh.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(Row._fields)
        writer.writerows(sorted(rows))
    fresh.replace(PATH)


def complete(ways: Sequence[str], numbers: int, seeds: int, minutes: float, *, tell: bool = False) -> None:
    """Make missing rows, chain by chain, until all are there or the minutes are over."""
    known, until = stored(), time.monotonic() + 60 * minutes
    for number in range(FIRST, FIRST + numbers):
        for seed in range(seeds):
            for way in ways:
                if (way, number, seed) in known or version(way) is None:
                    continue
                if time.monotonic() > until:
                    return
                known[way, number, seed] = row = search(way, number, seed)
                save(known.values())
                if tell:
                    print(*row, flush=True)


def complete_beside(ways: Sequence[str], rivals: Sequence[str]) -> None:
    """Make the missing rows of ways wherever every rival that was run has one."""
    known = stored()
    there = [w for w in rivals if any(way == w for way, _, _ in known)]
    for number, seed in sorted({(n, s) for _, n, s in known}):
        if there and all((w, number, seed) in known for w in there):
            for way in ways:
                if (way, number, seed) not in known:
                    known[way, number, seed] = search(way, number, seed)
                    save(known.values())


class Comparison(NamedTuple):
    """Means by way over the searches that all of them have made, and what they rest on."""

    chains: int
    searches: int
    absent: tuple[str, ...]
    means: dict[str, float]
    ratio: float
    low: float
    high: float


def compare(what: str, ours: str = "ours", rivals: Sequence[str] = chains.RIVALS, draws: int = 10_000) -> Comparison:
    """Compare ours with the best rival: ratio of means, its 95 % interval by drawing chains with all their searches.

    Each draw takes the rival that is best in it, so that the choice of the best is part of the interval.
    """
    rows = stored()
    there = [w for w in rivals if any(way == w for way, _, _ in rows)]
    pairs = [(n, s) for n, s in sorted({(n, s) for _, n, s in rows}) if all((w, n, s) in rows for w in (ours, *there))]
    if not pairs or not there:
        return Comparison(0, 0, tuple(w for w in rivals if w not in there), {}, math.nan, math.nan, math.nan)
    numbers = sorted({n for n, _ in pairs})
    table = np.array(
        [[fmean(getattr(rows[w, n, s], what) for m, s in pairs if m == n) for w in (ours, *there)] for n in numbers]
    )
    drawn = np.random.default_rng(0).integers(0, len(numbers), (draws, len(numbers)))
    means = table[drawn].mean(axis=1)
    ratios = means[:, 0] / np.maximum(means[:, 1:].min(axis=1), 1e-12)
    low, high = np.percentile(ratios, (2.5, 97.5)) if len(numbers) > 1 else (math.nan, math.nan)
    plain = table.mean(axis=0)
    ratio = float(plain[0] / max(plain[1:].min(), 1e-12))
    absent = tuple(w for w in rivals if w not in there)
    by_way = dict(zip((ours, *there), plain.tolist(), strict=True))
    return Comparison(len(numbers), len(pairs), absent, by_way, ratio, float(low), float(high))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--chains", type=int, default=60)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--minutes", type=float, default=math.inf)
    parser.add_argument("--ways", default=",".join(chains.WAYS))
    asked = parser.parse_args()
    complete(asked.ways.split(","), asked.chains, asked.seeds, asked.minutes, tell=True)
    for what in ("regret_10", "regret_20", "regret_30", "runs", "kept_regret", "kept_misses", "cpu_s"):
        print(what, compare(what))


if __name__ == "__main__":
    main()
