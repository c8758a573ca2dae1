"""`dspkit.compare`: all runs of a comparison, one row per run."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import executors as engines
from .cases import ORACLE, error_text, runs_of
from .result_cache import ResultCache, fingerprint, results_frame
from .runs import rules_of

if TYPE_CHECKING:
    import pandas as pd


def compare(
    policies: Any,
    workloads: Any = None,
    apps: Any = None,
    plants: Any = None,
    seeds: Iterable[int] = range(20),
    spark: Any = None,
    *,
    folder: str | Path | None = None,
    processes: int | None = None,
    progress: bool = True,
    **rules: Any,
) -> pd.DataFrame:
    """Run every policy on every job, plant and load with every seed; return one row of scores per run, in this order.

    A run that fails is a row with its `error`.

    Parameters
    ----------
    policies : str, Policy, sequence or mapping of these
        The policies by name; see `standard_policies`. A policy may be a function of a `Case`.
    workloads : Workload or mapping, optional
        The loads by name, by default each job's own; see `standard_loads`. A load may be a function of (app, seed).
    apps : App, Topology, sequence or mapping of these
        The jobs by name; a Topology needs a plant.
    plants : Plant or mapping, optional
        Plants by job; several plants of a job by name.
    seeds : iterable of int
        Seeds of the runs.
    spark : SparkSession, optional
        The session that executes the runs.
    folder : path, optional
        Folder of finished rows, from which an interrupted comparison continues. A row is reused only if no input of its
        run has changed.
    processes : int, optional
        Number of processes, by default one per core; 0 runs in this process.
    progress : bool
        Whether to show a progress bar.
    **rules
        Fields of `comparison.Rules`: `duration_s`, `window_s`, `target_latency_s`, `penalty`, ...

    Examples
    --------
    >>> from dspkit import apps
    >>> from dspkit.policies.ds2 import DS2
    >>> from dspkit.policies.static import Static
    >>> table = compare({"ds2": DS2(), "nothing": Static()}, apps=apps.tweet_words(), seeds=[1],
    ...                 duration_s=120, processes=0)
    >>> table[["policy", "load", "job", "seed"]].values.tolist()
    [['ds2', 'own', 'tweet_words', 1], ['nothing', 'own', 'tweet_words', 1]]
    >>> bool((table.regret >= 0).all())
    True
    """
    count = engines.checked(processes)
    runs = runs_of(policies, workloads, apps, plants, seeds, rules_of(rules))
    keys = []
    for i, run in enumerate(runs):
        try:
            keys.append(fingerprint(run))
        except Exception as error:
            runs[i] = replace(run, failed=run.failed or error_text(error))
            keys.append(f"row {i}")
    kept = ResultCache(folder)
    first = {key: i for i, key in reversed(list(enumerate(keys)))}
    open_ = {i: runs[i] for key, i in sorted(first.items(), key=lambda pair: pair[1]) if key not in kept.rows}
    found: Any = (
        engines.over_spark(open_, spark)
        if spark is not None and open_
        else engines.in_processes(open_, count)
        if count > 0 and len(open_) > 1
        else engines.in_this_process(open_)
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


def _table(runs: Any, keys: list[str], kept: ResultCache) -> pd.DataFrame:
    """Return the rows in the order of the runs, with the runs' names and the regret against the oracle."""
    rows, bound, lacks = [], None, ""
    for run, key in zip(runs, keys, strict=True):
        row = {
            **kept.rows[key],
            "policy": run.names[0],
            "load": run.names[1],
            "job": run.names[2],
            "plant": run.names[3],
            "seed": run.seed,
        }
        if run.names[0] == ORACLE:
            bound, lacks = row.get("cost"), row["error"]
            continue
        if not row["error"] and bound is not None:
            row |= {"oracle": bound, "regret": row["cost"] - bound, "regret_share": row["cost"] / bound - 1}
        elif not row["error"] and lacks:
            row["error"] = f"oracle: {lacks}"
        rows.append(row)
    return results_frame(rows)


class _NoBar:
    def update(self, n: int) -> None: ...
    def close(self) -> None: ...


def _bar(total: int, done: int, wanted: bool) -> Any:
    """Return a progress bar; a dummy without a terminal or notebook."""
    if not wanted or os.environ.get("DSPKIT_HEADLESS") or not (sys.stderr.isatty() or "ipykernel" in sys.modules):
        return _NoBar()
    from tqdm import tqdm  # type: ignore[import-untyped]

    return tqdm(total=total, initial=done, unit="run", desc="compare", smoothing=0.05, dynamic_ncols=True)
