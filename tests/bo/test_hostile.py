"""Whatever is given to the scorer: a DspkitError in words, or a right answer; never a raw error or a silent NaN."""

import json
import math

import numpy as np
import pytest

from dspkit import Topology
from dspkit.apps import yahoo
from dspkit.bo import (
    GP,
    Lattice,
    Library,
    Model,
    Optimizer,
    Sample,
    Search,
    expected_improvement,
    fit,
    propose,
    score,
    stop_threshold,
)
from dspkit.bo.search import prior_mean
from dspkit.bo.transfer import blend, recommend
from dspkit.core import DspkitError, FileError
from dspkit.plots import posterior, scores
from dspkit.policies.autrascale import AuTraScale
from dspkit.policies.drs import allocate, network_time, operator_time
from dspkit.ui.lessons.search import base_of

BOX, NAN, INF = Lattice((2, 3), 9), math.nan, math.inf
SOME = [Sample((2, 3), 0.8, 0.1), Sample((9, 9), 0.9, 0.05)]
MODEL = Model(1e3, (1, 1), (9, 9), tuple(SOME))
LIBRARY = Library(("a", "b"), (MODEL, Model(2e3, (1, 1), (9, 9), tuple(SOME))))

REFUSED = {
    "latency text": lambda: score((1, 2), (1, 2), "x", 0.2),
    "latency none": lambda: score((1, 2), (1, 2), None, 0.2),
    "configuration text": lambda: score("ab", (1, 2), 0.1, 0.2),
    "configurations ragged": lambda: score([(1, 2), (1,)], (1, 2), 0.1, 0.2),
    "configuration infinite": lambda: score((INF, 2), (1, 2), 0.1, 0.2),
    "latencies too many": lambda: score([(1, 2), (2, 2)], (1, 2), [0.1, 0.2, 0.3], 0.2),
    "target a truth": lambda: score((1, 2), (1, 2), 0.1, True),
    "over a truth": lambda: stop_threshold(0.8, True),
    "sigma NaN": lambda: expected_improvement(0.9, NAN, 0.9),
    "sigma negative": lambda: expected_improvement(0.9, -0.1, 0.9),
    "mean NaN": lambda: expected_improvement([0.9, NAN], [0.1, 0.1], 0.9),
    "best NaN": lambda: expected_improvement(0.9, 0.1, NAN),
    "xi negative": lambda: expected_improvement(0.9, 0.1, 0.9, -1),
    "sigmas too many": lambda: expected_improvement([0.9, 0.8], [0.1, 0.1, 0.1], 0.9),
    "most beyond sense": lambda: Lattice((1, 2), 10**30),
    "clamp NaN": lambda: BOX.clamp((NAN, 3)),
    "clamp short": lambda: BOX.clamp((3,)),
    "scaled of others": lambda: BOX.scaled([(1, 2, 3)]),
    "draw negative": lambda: BOX.draw(np.random.default_rng(0), -1),
    "points ragged": lambda: fit([[1], [1, 2]], [1, 2]),
    "points text": lambda: fit([["a"]], [1]),
    "points of three dimensions": lambda: fit(np.zeros((2, 2, 2)), [0.1, 0.2]),
    "noise text": lambda: fit([[0.1]], [0.1], noise="a"),
    "mean not a number": lambda: fit([[0.1]], [0.1], mean=NAN),
    "lengths swapped": lambda: fit([[0.1], [0.2]], [0.1, 0.2], length=(5, 0.05)),
    "lengths negative": lambda: fit([[0.1], [0.2]], [0.1, 0.2], length=(-1, 2)),
    "length zero": lambda: GP(np.zeros((1, 1)), np.zeros(1), 0.0, 0.0, 0.1),
    "score NaN in a process": lambda: GP(np.zeros((1, 1)), np.array([NAN]), 0.0, 1.0, 0.1),
    "asked about others": lambda: fit([[0.1]], [0.1]).predict([[1, 2]]),
    "asked about NaN": lambda: fit([[0.1]], [0.1]).predict([[NAN]]),
    "posterior NaN": lambda: propose(lambda X: (np.full(len(X), NAN), np.full(len(X), 0.1)), BOX, 0.9),
    "posterior's sigma NaN": lambda: propose(lambda X: (np.full(len(X), 0.8), np.full(len(X), NAN)), BOX, 0.9),
    "best infinite": lambda: Search().propose(BOX, SOME, best=-INF),
    "samples of two jobs": lambda: Search().surrogate(BOX, [Sample((1, 2, 3), 0.5), Sample((1, 2), 0.5)]),
    "sample without score": lambda: Search().surrogate(BOX, [Sample((2, 3), None)]),
    "sample of no instances": lambda: Search().surrogate(BOX, [Sample((-2, 3), 0.5)]),
    "sample's latency NaN": lambda: Search(prior="monotone").surrogate(BOX, [Sample((2, 3), 0.3, NAN)]),
    "no lattice": lambda: Optimizer(None),
    "no search": lambda: Optimizer(BOX, "x"),
    "no samples": lambda: Optimizer(BOX, samples=[1, 2]),
    "samples of another job": lambda: Optimizer(BOX, samples=[Sample((1, 2, 3), 0.5)]),
    "seed negative": lambda: Optimizer(BOX, seed=-1),
    "told text": lambda: Optimizer(BOX).tell((2, 3), latency_s="a"),
    "told two latencies": lambda: Optimizer(BOX).tell((2, 3), latency_s=[0.1, 0.2]),
    "told a score and NaN": lambda: Optimizer(BOX).tell((2, 3), 0.5, latency_s=NAN),
    "told a truth": lambda: Optimizer(Lattice((1, 1), 5)).tell((True, 2), 0.5),
    "model of text": lambda: Model(1.0, (1,), (2,), ("x",)),
    "model of nothing": lambda: Model(1.0, (1,), (2,), None),
    "model with no instances": lambda: Model(1.0, (1,), (2,), (Sample((0,), 0.5),)),
    "model with NaN latency": lambda: Model(1.0, (1,), (2,), (Sample((1,), 0.5, NAN),)),
    "library of text": lambda: Library(("a",), ("x",)),
    "operators in one word": lambda: Library("ab"),
    "operators twice": lambda: Library(("a", "a")),
    "nearest to NaN": lambda: LIBRARY.nearest(NAN),
    "nearest to text": lambda: LIBRARY.nearest("x"),
    "adding text": lambda: LIBRARY.add("x"),
    "adding within NaN": lambda: LIBRARY.add(MODEL, NAN),
    "models of another job": lambda: blend(LIBRARY, 1.0, Lattice((1,), 3), Search()),
    "models unknown": lambda: blend(LIBRARY, 1.0, BOX, Search(), models="x"),
    "align unknown": lambda: blend(LIBRARY, 1.0, BOX, Search(), align="x"),
    "rate NaN": lambda: blend(LIBRARY, NAN, BOX, Search(), models="weighted"),
    "incumbent unknown": lambda: recommend(blend(LIBRARY, 1.0, BOX, Search()), SOME, Search(), 3, incumbent="x"),
    "prior unknown": lambda: prior_mean("x", (1,), [], 0.8, 0.1),
    "rate zero": lambda: operator_time(1, 0, 1),
    "arrivals NaN": lambda: operator_time(NAN, 2, 1),
    "no instance": lambda: operator_time(1, 2, 0),
    "fewer rates": lambda: network_time((1, 2), (1,), (1,), 1),
    "network NaN": lambda: network_time((1, NAN), (3, 3), (1, 1), 1),
    "outside negative": lambda: network_time((1,), (3,), (1,), -1),
    "nothing to give slots": lambda: allocate((), (), 1, slots=5),
    "fewer bounds": lambda: allocate((1, 2), (3, 3), 1, slots=5, max_parallelism=(3,)),
    "target NaN": lambda: allocate((1, 2), (3, 3), 1, target_latency_s=NAN),
    "target negative": lambda: allocate((1, 2), (3, 3), 1, target_latency_s=-1),
    "outside NaN": lambda: allocate((1, 2), (3, 3), NAN, slots=9),
    "rate infinite": lambda: allocate((1, 2), (INF, 3), 1, slots=9),
    "rates text": lambda: allocate("ab", (3, 3), 1, slots=9),
    "one name for two": lambda: posterior(Search().surrogate(BOX, SOME), SOME, names=("a",)),
    "a picture of NaN": lambda: scores({"a": [Sample((2, 3), NAN)]}, 0.9),
    "a NaN threshold": lambda: posterior(Search().surrogate(BOX, SOME), SOME, threshold=NAN),
    "base of no instance": lambda: AuTraScale(base={"a": 0, "b": 1}).init(Topology.chain("a", "b")),
    "base NaN": lambda: AuTraScale(base={"a": NAN, "b": 1}).init(Topology.chain("a", "b")),
    "a rate in text": lambda: yahoo("a"),
    "a rate beyond the lesson": lambda: base_of(1e9),
}


@pytest.mark.parametrize("name", REFUSED)
def test_nonsense_is_refused_in_words(name):
    with pytest.raises(DspkitError):
        REFUSED[name]()


def test_what_can_be_understood_is_taken():
    assert Lattice((x for x in (1, 2)), (x for x in (3, 4))) == Lattice((1, 2), (3, 4))
    assert BOX.clamp((INF, 0)) == (9, 3)
    assert BOX.bootstrap(np.int64(3)) == BOX.bootstrap(3)
    assert [k in BOX for k in (3, None, "ab", (2.5, 3), (2, 3), [9, 9], np.array([2, 3]))] == [False] * 4 + [True] * 3
    assert Optimizer(BOX).tell((2, 3), np.float32(0.5)).score == 0.5
    assert GP([[0.0]], [0.5], 0.5, 1.0, 0.1).predict([[0.0]])[0] == pytest.approx([0.5])


def test_names_of_operators_are_escaped():
    spec = str(posterior(Search().surrogate(BOX, SOME), SOME, names=("<b>", "y")).spec)
    assert "<b>" not in spec
    assert "&lt;b&gt;" in spec


def test_a_latency_that_never_came_survives_the_file(tmp_path):
    """It was written as Infinity, which load() then refused."""
    made = Optimizer(BOX)
    made.tell((2, 3), latency_s=INF)
    library = Library(("a", "b"), (Model(1.0, BOX.base, BOX.max_parallelism, tuple(made.samples)),))
    assert Library.load(library.save(tmp_path / "models.json")) == library
    assert library.models[0].samples[0].latency_s is None


@pytest.mark.parametrize(
    "change",
    [
        lambda d, m, s: m.update(rate_per_s=10**400), lambda d, m, s: s.update(score=10**400),
        lambda d, m, s: s.update(score=1e308), lambda d, m, s: s.update(k=[10**30, 1]),
        lambda d, m, s: m.update(max_parallelism=[10**30, 9]), lambda d, m, s: s.update(k=[-3, 1]),
        lambda d, m, s: s.update(k="12"), lambda d, m, s: d.update(operators="ab"),
        lambda d, m, s: d.update(operators=["a", "a"]), lambda d, m, s: d.update(operators={"a": 1, "b": 2}),
        lambda d, m, s: d.update(kind="profile"), lambda d, m, s: d.update(models={"a": 1}),
        lambda d, m, s: m.update(samples=[[1, 2]]), lambda d, m, s: m.update(base=[True, 1]),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused(tmp_path, change):
    path = LIBRARY.save(tmp_path / "models.json")
    told = json.loads(path.read_text())
    change(told, told["models"][0], told["models"][0]["samples"][0])
    path.write_text(json.dumps(told))
    with pytest.raises(FileError):
        Library.load(path)
