"""The time of predictions: states and stationary distributions of 10,000 operators at once, beside a random walk."""

from __future__ import annotations

from typing import Any

from benchmarks import Claim, side_by_side

OPERATORS, SAMPLES, WALKED, STEPS = 10_000, 100, 200, 100_000


def ten_thousand_operators_s() -> Claim:
    """Seconds to classify the loads of 10,000 operators x 100 samples and to predict each one's next state."""
    times = _times()
    return Claim(times["ours"], "s", target=0.05, better="lower", detail=times)


def over_random_walk() -> Claim:
    """The speed-up over the released prototype's method: 100,000 random steps per operator.

    The walk is compiled, and walked for 200 operators of the same loads; its time grows with their number.
    """
    times = _times()
    walk = times["walk"] * OPERATORS / WALKED
    return Claim(walk / times["ours"], "x", target=100, detail={**times, "walk of all": walk})


def _times() -> dict[str, float]:
    import numpy as np

    from dspkit.forecasting import markov

    random = np.random.default_rng(0)
    # Random walks, as real loads: successive values are similar, and all nine transitions occur.
    loads = np.abs(np.cumsum(random.normal(0, 0.15, (OPERATORS, SAMPLES)), axis=1) + 0.7)
    walk = _compiled_walk()

    def ours() -> Any:
        return markov.predict(markov.classify(loads))

    def walked() -> Any:
        matrix = markov.transition_matrix(markov.classify(loads[:WALKED]))
        e = walk(matrix.cumsum(axis=2), STEPS, 1)
        return markov.choose(e, markov.classify(loads[:WALKED, -1]))

    agree = float((ours()[:WALKED] == walked()).mean())  # a walk is wrong by chance if two states are about as likely
    assert agree > 0.97, agree
    return {**side_by_side({"ours": ours, "walk": walked}, repeats=7), "agree": agree}


def _compiled_walk() -> Any:
    """Return the share of steps that a walk from the last state spends in each state; compiled, like the prototype."""
    import numba
    import numpy as np

    @numba.njit
    def walk(cumulated: Any, steps: int, seed: int) -> Any:
        np.random.seed(seed)  # noqa: NPY002  (numba's own)
        n, k = cumulated.shape[0], cumulated.shape[1]
        share = np.zeros((n, k))
        for i in range(n):
            at = 0
            for _ in range(steps):
                u, to = np.random.random(), 0  # noqa: NPY002
                while to < k - 1 and u >= cumulated[i, at, to]:
                    to += 1
                at = to
                share[i, at] += 1
        return share / steps

    return walk
