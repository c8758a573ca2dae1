r"""The choice of a threshold: the bandit form of Q-learning over candidates [elysium].

| paper | here |
|---|---|
| $R(thr) = thr - degradation(thr)$ | `reward` |
| $Q(a) \leftarrow Q(a) + \frac1{n_a}(R - Q(a))$ | each candidate is tried equally often; one state, $\gamma = 0$ |

A high threshold uses nodes well, and a low one preserves throughput. The paper states no learning rate and no
exploration: the step 1/n makes Q the mean reward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core import ArgumentError
from ..core.validation import is_number, is_whole, number

CANDIDATES = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)


@dataclass(frozen=True)
class LearnedThreshold:
    """The result of `learn_threshold`.

    Parameters
    ----------
    best : float
        The threshold of the highest value.
    values : dict
        Mean reward by candidate.
    tries : int
        Number of all tries.

    Examples
    --------
    >>> LearnedThreshold(0.8, {0.8: 0.7}, 1).best
    0.8
    """

    best: float
    values: dict[float, float]
    tries: int


def reward(threshold: float, degradation: float) -> float:
    """$R = thr - degradation$.

    Parameters
    ----------
    threshold : float
        The threshold.
    degradation : float
        Lost share of the throughput.

    Examples
    --------
    >>> reward(0.75, 0.25)
    0.5
    """
    return threshold - degradation


def learn_threshold(
    play: Callable[[float, int], float], candidates: Sequence[float] = CANDIDATES, *, rounds: int = 1
) -> LearnedThreshold:
    """Return the candidate of the highest mean reward; the larger one in a tie.

    Parameters
    ----------
    play : callable
        Returns the throughput degradation of (threshold, round).
    candidates : sequence of float
        The thresholds to try.
    rounds : int
        Tries of each.

    Examples
    --------
    >>> printed = {0.75: 0.09, 0.80: 0.09, 0.85: 0.20}
    >>> learn_threshold(lambda thr, _: printed[thr], tuple(printed)).best
    0.8
    """
    shares = isinstance(candidates, Sequence) and all(is_number(c) and 0 <= c <= 1 for c in candidates)
    if not shares or not candidates or not is_whole(rounds) or rounds < 1:
        raise ArgumentError(
            f"candidates {candidates!r}, {rounds!r} rounds"[:120], expected="at least one, shares", fix="see CANDIDATES"
        )
    if not callable(play):
        raise ArgumentError(
            f"play={play!r}"[:100], expected="a function of threshold and round", fix="let it run a policy"
        )
    values = dict.fromkeys(map(float, candidates), 0.0)
    for n in range(1, rounds + 1):
        for threshold in values:
            lost = number(
                play(threshold, n - 1), "degradation", 0, fix="return one of dspkit.comparison.scores from play()"
            )
            values[threshold] += (reward(threshold, lost) - values[threshold]) / n
    best = max(values, key=lambda thr: (round(values[thr], 12), thr))
    return LearnedThreshold(best, values, rounds * len(values))
