r"""Statistics of a table of runs: means with bootstrap intervals, ranks, wins, ties and losses.

Runs of one load and seed are paired: they have the same bursts and the same noise. Policies are therefore compared case
by case, on the cases that all of them finished, and a resample draws cases with all their policies, not single runs.
Seeds are drawn within each load, job and plant, as these are fixed and not random.

Intervals are percentiles of the resampled means. With few seeds such intervals are too narrow, by the factor
$\sqrt{(n-1)/n}$ and because Student's tails are missing; the percentiles are therefore taken farther out, at
$\Phi(-\sqrt{n/(n-1)}\;t_{\alpha/2,\,n-1})$ [hesterberg2015].
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import MetricError
from ..core.typing import Array
from ..core.validation import number, whole
from ..simulator.simulator import random_streams
from .runs import KEYS

if TYPE_CHECKING:
    import pandas as pd


CASE, STRATUM = ["load", "job", "plant", "seed"], ["load", "job", "plant"]
BATCH = 4_000_000  # most numbers that are drawn at once


def ranking(
    table: pd.DataFrame, score: str = "cost", *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Return the policies by their mean score, least first, one row per policy.

    Columns: `mean` with its interval `low` to `high`; `rank` and its interval; `over_best`, the mean difference from
    the first policy, case by case; the number of `runs` that count, and of `failed` ones. Policies without a finished
    run are last, without numbers.

    Parameters
    ----------
    table : DataFrame
        The result of `dspkit.compare`.
    score : str
        Column of the score.
    level : float
        Confidence level of the intervals.
    resamples : int
        Number of bootstrap resamples.
    seed : int
        Seed of the resamples.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(p, "sine", "job", "own", s, s + (p == "b")) for p in "ab" for s in range(8)]
    >>> table = pd.DataFrame(rows, columns=["policy", "load", "job", "plant", "seed", "cost"])
    >>> ranking(table)[["policy", "mean", "over_best"]].values.tolist()
    [['a', 3.5, 0.0], ['b', 4.5, 1.0]]
    """
    import pandas as pd

    wide, failed = _cases(table, score)
    values, codes = wide.to_numpy(dtype=float), _strata(wide)
    drawn = _resampled(values, codes, resamples, seed)
    low, high = _ends(drawn, codes, level)
    means = wide.mean().to_numpy()
    best = int(means.argmin())
    over_low, over_high = _ends(drawn - drawn[:, [best]], codes, level)
    ranks = drawn.argsort(axis=1, kind="stable").argsort(axis=1, kind="stable") + 1
    tail = (1 - level) / 2
    rank_low, rank_high = np.quantile(ranks, (tail, 1 - tail), axis=0, method="inverted_cdf")
    out = pd.DataFrame(
        {
            "policy": wide.columns,
            "runs": len(wide),
            "failed": [failed.get(p, 0) for p in wide.columns],
            "mean": means,
            "low": low,
            "high": high,
            "rank": means.argsort().argsort() + 1,
            "rank_low": rank_low.astype(int),
            "rank_high": rank_high.astype(int),
            "over_best": means - means[best],
            "over_low": over_low,
            "over_high": over_high,
        }
    ).sort_values(["mean", "policy"], ignore_index=True)
    nobody = [p for p in failed if p not in wide.columns]
    if nobody:
        out = out.astype({"rank": float, "rank_low": float, "rank_high": float})
        lost = pd.DataFrame({"policy": nobody, "runs": 0, "failed": [failed[p] for p in nobody]})
        out = pd.concat([out, lost], ignore_index=True)
    return out


def difference(
    table: pd.DataFrame,
    one: str,
    other: str,
    score: str = "cost",
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> tuple[float, float, float]:
    """Return the mean of one policy's score less the other's, case by case, and its interval.

    Parameters
    ----------
    table : DataFrame
        The result of `dspkit.compare`.
    one, other : str
        Names of the policies.
    score, level, resamples, seed
        As of `ranking`.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(p, "sine", "job", "own", s, s + (p == "b")) for p in "ab" for s in range(8)]
    >>> difference(pd.DataFrame(rows, columns=["policy", "load", "job", "plant", "seed", "cost"]), "b", "a")
    (1.0, 1.0, 1.0)
    """
    for name in (one, other):
        _known(table, name)
    wide, _ = _cases(table[table.policy.isin([one, other])], score)
    if one not in wide or other not in wide:
        raise MetricError(f"{one!r} and {other!r}", expected="cases that both finished", fix="see the column error")
    apart, codes = (wide[one] - wide[other]).to_numpy(dtype=float)[:, None], _strata(wide)
    low, high = _ends(_resampled(apart, codes, resamples, seed), codes, level)
    return float(apart.mean()), float(low[0]), float(high[0])


def win_tie_loss(table: pd.DataFrame, score: str = "cost", *, tie: float = 0.01) -> pd.DataFrame:
    """Return for each pair of policies the cases in which the first has a lower, an equal or a higher score.

    Wins, ties and losses add up to `cases`.

    Parameters
    ----------
    table : DataFrame
        The result of `dspkit.compare`.
    score : str
        Column of the score.
    tie : float
        Greatest difference that is a tie, as a share of the greater score.

    Examples
    --------
    >>> import pandas as pd
    >>> rows = [(p, "sine", "job", "own", s, s + (p == "b")) for p in "ab" for s in range(8)]
    >>> table = pd.DataFrame(rows, columns=["policy", "load", "job", "plant", "seed", "cost"])
    >>> win_tie_loss(table).wins.tolist()
    [8, 0]
    """
    import pandas as pd

    number(tie, "tie", 0, 1, below=True, fix="pass a share, as in 0.01")
    wide, _ = _cases(table, score)
    rows = []
    for one in wide.columns:
        for other in wide.columns:
            if one != other:
                a, b = wide[one].to_numpy(), wide[other].to_numpy()
                same = np.abs(a - b) <= tie * np.maximum(np.abs(a), np.abs(b))
                wins, losses = int(((a < b) & ~same).sum()), int(((a > b) & ~same).sum())
                rows.append((one, other, wins, int(same.sum()), losses, len(wide)))
    return pd.DataFrame(rows, columns=["policy", "against", "wins", "ties", "losses", "cases"])


def interval(
    values: Sequence[float], *, level: float = 0.95, resamples: int = 2000, seed: int = 0
) -> tuple[float, float]:
    """Return a confidence interval of the mean of independent values, by the method of `ranking`.

    Parameters
    ----------
    values : sequence of float
        Finite numbers, at least one; the interval of a single one is NaN.
    level, resamples, seed
        As of `ranking`.

    Examples
    --------
    >>> low, high = interval([9.0, 10.0, 11.0, 10.0])
    >>> low < 10 < high
    True
    """
    try:
        numbers = np.asarray(list(values), dtype=float)
    except (TypeError, ValueError) as error:
        raise MetricError(f"{values!r}"[:80], expected="finite numbers, at least one", fix="drop the others") from error
    if not len(numbers) or not np.isfinite(numbers).all():
        raise MetricError(f"{len(numbers)} values"[:80], expected="finite numbers, at least one", fix="drop the others")
    codes = np.zeros(len(numbers), dtype=int)
    low, high = _ends(_resampled(numbers[:, None], codes, resamples, seed), codes, level)
    return float(low[0]), float(high[0])


def _cases(table: pd.DataFrame, score: str) -> tuple[pd.DataFrame, dict[str, int]]:
    """Return scores by case (rows) and policy, of the cases that all policies finished, and the failed runs of each.

    Policies without any finished run are left out.
    """
    _must_be_table(table)
    if missing := [c for c in (*KEYS, score) if c not in table]:
        raise MetricError(
            f"a table without {missing[0]!r}", expected=f"some of {list(table)}", fix="see dspkit.compare"
        )
    if table[score].dtype.kind not in "biuf":
        raise MetricError(f"column {score!r} of {table[score].dtype}", expected="numbers", fix="see comparison.SCORES")
    if table.duplicated([*KEYS]).any():
        raise MetricError("rows of one run twice", expected="each run once", fix="drop the duplicates")
    wide = table.pivot(index=CASE, columns="policy", values=score)
    lost = table[table["error"] != ""] if "error" in table else table[table[score].isna()]
    failed = lost.groupby("policy").size().to_dict()  # a finished run may lack this score
    order = [p for p in dict.fromkeys(table.policy) if wide[p].notna().any()]
    known = wide[order].dropna()
    if known.empty:
        raise MetricError(f"no case with {score!r} of all", expected="at least one", fix="see the column error")
    return known, {p: int(failed.get(p, 0)) for p in dict.fromkeys(table.policy)}


def _strata(wide: pd.DataFrame) -> Array:
    """Return for each case the index of its load, job and plant."""
    return np.asarray(wide.index.droplevel("seed").factorize()[0])


def _resampled(values: Array, codes: Array, resamples: int, seed: int) -> Array:
    """Return the means of each column over resampled cases: [resample, column]."""
    whole(resamples, "resamples", 10, fix="as in 2000")
    random = random_streams(seed)[0]
    sums = np.zeros((resamples, values.shape[1]))
    for code in np.unique(codes):
        mine = values[codes == code]
        n = len(mine)
        for at in range(0, resamples, size := max(1, BATCH // n)):
            count = min(size, resamples - at)
            weights = random.multinomial(n, np.full(n, 1 / n), size=count)
            sums[at : at + count] += weights @ mine
    return sums / len(values)


def _ends(drawn: Array, codes: Array, level: float) -> tuple[Array, Array]:
    """Return percentiles, corrected for the small number of cases."""
    from scipy.special import ndtr, stdtrit

    number(level, "level", 0.5, 1, below=True, fix="pass a share, as in 0.95")
    strata = len(np.unique(codes))
    n = len(codes) / strata
    if n < 2:  # one seed has no variance
        nothing = np.full(drawn.shape[1], np.nan)
        return nothing, nothing
    free = max(1.0, len(codes) - strata)
    tail = float(ndtr(-math.sqrt(n / (n - 1)) * stdtrit(free, (1 + level) / 2)))
    low, high = np.quantile(drawn, (tail, 1 - tail), axis=0)
    return low, high


def _must_be_table(table: Any) -> None:
    import pandas as pd

    if not isinstance(table, pd.DataFrame) or "policy" not in table:
        raise MetricError(f"table {table!r}"[:80], expected="the result of dspkit.compare", fix="pass it")


def _known(table: pd.DataFrame, name: str) -> None:
    _must_be_table(table)
    if name not in set(table["policy"]):
        raise MetricError(
            f"policy {name!r}", expected=f"one of {', '.join(dict.fromkeys(table.policy))}", fix="choose one"
        )
