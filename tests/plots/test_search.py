"""Pictures of searches: what they draw is what the search knows."""

import numpy as np
import pytest

from dspkit import plots
from dspkit.bo import Lattice, Sample, Search, expected_improvement
from dspkit.core import MetricError
from dspkit.plots import PLOTLY_MIME
from dspkit.ui import lessons


def test_a_posterior_shows_mean_and_improvement_of_every_configuration():
    box = Lattice((2, 3), (5, 9))
    samples = [Sample((2, 3), 0.7), Sample((5, 9), 0.8), Sample((4, 4), 0.85)]
    search = Search()
    surrogate, proposal = search.surrogate(box, samples), search.propose(box, samples)
    picture = plots.posterior(surrogate, samples, proposal, names=("a<b", "c"), threshold=0.9)
    score, gain = picture.spec["data"][:2]
    mean, sigma = surrogate([(4, 9)])
    assert score["z"][9 - 3][4 - 2] == pytest.approx(float(mean[0]), abs=1e-6)
    assert gain["customdata"][9 - 3][4 - 2][1] == pytest.approx(
        float(expected_improvement(mean, sigma, 0.85)[0]), rel=1e-3
    )
    values = [cell[1] for line in gain["customdata"] for cell in line]
    assert max(values) == pytest.approx(proposal.improvement, rel=0.5)
    dots = next(t for t in picture.spec["data"] if t.get("name") == "run")
    assert list(zip(dots["x"], dots["y"], strict=True)) == [s.k for s in samples]
    assert "best is 4, 4" in picture.summary
    assert ", ".join(map(str, proposal.k)) in picture.summary
    assert PLOTLY_MIME in picture.bundle
    assert "nothing is left" in plots.posterior(surrogate, samples).summary


def test_scores_run_by_run_with_the_best_so_far():
    ways = {"a": [Sample((1,), 0.5), Sample((2,), 0.9), Sample((3,), 0.7)], "b": [Sample((1,), 0.95)]}
    picture = plots.scores(ways, 0.9)
    assert picture.spec["data"][1]["y"] == [0.5, 0.9, 0.9]
    assert picture.summary == "a reaches 0.900 in 3 runs; b reaches 0.950 in 1 run. The threshold is 0.900."


def test_what_cannot_be_drawn_is_refused():
    one = Search().surrogate(Lattice((1,), 5), [Sample((1,), 0.5)])
    for call in (lambda: plots.posterior(one, [Sample((1,), 0.5)]), lambda: plots.scores({}, 0.9)):
        with pytest.raises(MetricError):
            call()


def test_the_lesson_of_the_scorer_goes_run_by_run():
    """The star of one step is the last dot of the next, and what is said to be met is met."""
    for runs in (6, 9):
        now, later = lessons.Scorer(runs=runs, spread=0.0), lessons.Scorer(runs=runs + 1, spread=0.0)
        made = now.search()
        proposal = made.search.propose(made.lattice, made.samples)
        assert later.search().samples[-1].k == proposal.k
    samples = lessons.Scorer().search().samples
    met = [s for s in samples if s.latency_s <= 0.13 and s.score >= 0.9]
    assert f"met in run {samples.index(met[0]) + 1}." in lessons.Scorer().plot().summary


def test_the_lesson_of_transfer_saves_runs_at_all_its_factors():
    for factor in np.linspace(1.2, 2.0, 5):
        lesson = lessons.Transfer(factor=float(factor))
        new, scratch = lesson.plot().spec["data"][2:4], lesson.plot().spec["data"][0]
        assert len(new[0]["x"]) <= 0.6 * len(scratch["x"])
