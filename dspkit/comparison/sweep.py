"""`dspkit.compare`: all runs of a comparison, one row each."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import engines
from .fingerprint import fingerprint
from .kept import Kept, frame
from .question import ORACLE, runs_of, said
from .runs import rules_of

if TYPE_CHECKING:
    import pandas as pd


def compare(
    policies: Any,
    workloads: Any = None,
    topologies: Any = None,
    plants: Any = None,
    seeds: Iterable[int] = range(20),
    spark: Any = None,
    *,
    folder: str | Path | None = None,
    processes: int | None = None,
    progress: bool = True,
    **rules: Any,
) -> pd.DataFrame:
    """Play every policy on every job, plant and load with every seed: a row of scores each, in this order.

    `policies`, `workloads` and `topologies` are by name; `standard_policies()`, `standard_loads()` are ready-made.
    `topologies` are Apps, or Topologies with `plants` of the same names. Workloads and policies may be functions, see
    `comparison.question`. Keyword arguments are `comparison.Rules`: `duration_s`, `window_s`, `slo_s`, `penalty`, ...

    Runs are played in `processes` (all cores; 0: in this one), or over a SparkSession. With a `folder` finished rows
    are kept there, and a sweep that was stopped goes on; a row counts as finished only if nothing has changed that it
    follows from. A run that fails is a row with its `error`.

    >>> from dspkit import topologies
    >>> from dspkit.policies.ds2 import DS2
    >>> from dspkit.policies.static import Static
    >>> table = compare({"ds2": DS2(), "nothing": Static()}, topologies=topologies.tweet_words(), seeds=[1],
    ...                 duration_s=120, processes=0)
    >>> table[["policy", "load", "job", "seed"]].values.tolist()
    [['ds2', 'own', 'tweet_words', 1], ['nothing', 'own', 'tweet_words', 1]]
    >>> bool((table.regret >= 0).all())
    True
    """
    count = engines.checked(processes)
    runs = runs_of(policies, workloads, topologies, plants, seeds, rules_of(rules))
    keys = []
    for i, run in enumerate(runs):
        try:
            keys.append(fingerprint(run))
        except Exception as error:
            runs[i] = replace(run, failed=run.failed or said(error))
            keys.append(f"row {i}")
    kept = Kept(folder)
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    open_ = {i: runs[i] for key, i in sorted(first.items(), key=lambda pair: pair[1]) if key not in kept.rows}
    found: Any = (
        engines.over_spark(open_, spark)
        if spark is not None and open_
        else engines.in_processes(open_, count)
        if count > 0 and len(open_) > 1
        else engines.here(open_)
    )
    bar = _bar(len(first), len(first) - len(open_), progress)
    try:
        for i, row in found:
            kept.add(keys[i], row)
            bar.update(1)
    finally:
        found.close()
        bar.close()
        kept.save()
    kept.together()
    return _table(runs, keys, kept)


def _table(runs: Any, keys: list[str], kept: Kept) -> pd.DataFrame:
    """Rows in the order of the runs, under the names that they have now, each with the regret against its oracle."""
    rows, bound, lacks = [], None, ""
    for run, key in zip(runs, keys, strict=True):
        row = {**kept.rows[key], "policy": run.names[0], "load": run.names[1], "job": run.names[2],
               "plant": run.names[3], "seed": run.seed}  # fmt: skip
        if run.names[0] == ORACLE:
            bound, lacks = row.get("cost"), row["error"]
            continue
        if not row["error"] and bound is not None:
            row |= {"oracle": bound, "regret": row["cost"] - bound, "regret_share": row["cost"] / bound - 1}
        elif not row["error"] and lacks:
            row["error"] = f"oracle: {lacks}"
        rows.append(row)
    return frame(rows)


class _NoBar:
    def update(self, n: int) -> None: ...
    def close(self) -> None: ...


def _bar(total: int, done: int, wanted: bool) -> Any:
    """How far it is and how long it will take; none where nobody looks."""
    if not wanted or os.environ.get("DSPKIT_HEADLESS") or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return _NoBar()
    from tqdm import tqdm  # type: ignore[import-untyped]

    return tqdm(total=total, initial=done, unit="run", desc="compare", smoothing=0.05, dynamic_ncols=True)
