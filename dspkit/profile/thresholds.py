r"""Which threshold: the bandit form of Q-learning over candidates [elysium].

    | paper | here |
    |---|---|
    | $R(thr) = thr - degradation(thr)$ | `reward` |
    | $Q(a) \leftarrow Q(a) + \frac1{n_a}(R - Q(a))$ | each candidate is tried equally often; one state, $\gamma = 0$ |

A high threshold uses nodes well, and a low one keeps throughput up. The paper gives no learning rate and no
exploration: the step 1/n makes Q the mean reward.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from numbers import Real

from ..errors import KnobError

CANDIDATES = (0.60, 0.65, 0.70, 0.75, 0.80, 0.85, 0.90)


@dataclass(frozen=True)
class Learned:
    """The threshold of the highest value, and all candidates with theirs."""

    best: float
    values: dict[float, float]
    tries: int


def reward(threshold: float, degradation: float) -> float:
    """$R = thr - degradation$."""
    return threshold - degradation


def learn_threshold(
    play: Callable[[float, int], float], candidates: Sequence[float] = CANDIDATES, *, rounds: int = 1
) -> Learned:
    """The candidate of the highest mean reward; `play(threshold, round)` gives a throughput degradation. The larger of
    equals.

    >>> printed = {0.75: 0.09, 0.80: 0.09, 0.85: 0.20}
    >>> learn_threshold(lambda thr, _: printed[thr], tuple(printed)).best
    0.8
    """
    shares = isinstance(candidates, Sequence) and all(isinstance(c, Real) and 0 <= c <= 1 for c in candidates)
    if not shares or not candidates or isinstance(rounds, bool) or not isinstance(rounds, int) or rounds < 1:
        raise KnobError(
            f"candidates {candidates!r}, {rounds!r} rounds"[:120], expected="at least one, shares", fix="see CANDIDATES"
        )
    if not callable(play):
        raise KnobError(f"play={play!r}"[:100], expected="a function of threshold and round", fix="let it run a policy")
    values = dict.fromkeys(map(float, candidates), 0.0)
    for n in range(1, rounds + 1):
        for threshold in values:
            lost = play(threshold, n - 1)
            if isinstance(lost, bool) or not isinstance(lost, Real) or not 0 <= lost < math.inf:
                raise KnobError(f"a degradation of {lost!r}", expected="a number >= 0", fix="see dspkit.scores")
            values[threshold] += (reward(threshold, float(lost)) - values[threshold]) / n
    best = max(values, key=lambda thr: (round(values[thr], 12), thr))
    return Learned(best, values, rounds * len(values))
