"""Stela written a second time, from the paper's pages, in plain recursion and exact fractions, beside dspkit.etp."""

import math
from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import etp

RATES = st.sampled_from([Fraction(1), Fraction(6, 5), Fraction(3, 2)])


class Paper:
    """The application as section II describes it; maps of processing and emit rates that scale-out updates."""

    def __init__(self, operators, emit, outside, processing, congestion_rate):
        self.operators, self.emit, self.outside, self.rate = operators, dict(emit), outside, congestion_rate
        self.processing = {o: Fraction(x) for o, x in processing.items()}

    def children(self, o):
        return [c for (p, c) in self.emit if p == o]

    def sinks(self):
        return [o for o in self.operators if not self.children(o)]

    def congested(self, o):
        """II-C: emit rates of all parents towards it, over its processing rate, exceed the threshold."""
        came = self.outside.get(o, 0) + sum(x for (_, c), x in self.emit.items() if c == o)
        return came > 0 if self.processing[o] == 0 else came / self.processing[o] > self.rate

    def reaches(self, o):
        """II-D: sinks that it reaches by at least one path without a congested operator after it."""
        if not self.children(o):
            return {o}
        return set().union(*(self.reaches(c) for c in self.children(o) if not self.congested(c)))

    def find_etp(self, o, literal=False):
        total = sum(self.processing[s] for s in self.sinks())
        if total == 0:
            return Fraction(0)
        if not literal:
            return sum((self.processing[s] for s in self.reaches(o)), Fraction(0)) / total
        if not self.children(o):  # Algorithm 1, line by line
            return self.processing[o] / total
        return sum((self.find_etp(c, True) for c in self.children(o) if not self.congested(c)), Fraction(0))

    def scale_out(self, executors, tasks, slots, machines, literal):
        """Algorithm 2: executors and tasks by operator; who gets each slot, on which machine."""
        k, given_, sources = dict(executors), [], [o for o in self.operators if not any(c == o for _, c in self.emit)]
        turn = 0
        for slot in range(slots):
            jammed = [o for o in self.operators if self.congested(o) and k[o] < tasks[o]]
            if jammed:
                value = {o: self.find_etp(o, literal) for o in jammed}
                target = next(o for o in jammed if value[o] == max(value.values()))
            else:
                open_ = [s for i in range(len(sources)) if k[s := sources[(turn + i) % len(sources)]] < tasks[s]]
                if not open_:
                    return given_
                target = open_[0]
                turn = sources.index(target) + 1
            grows = Fraction(k[target] + 1, k[target])
            self.processing[target] *= grows
            for edge in self.emit:
                if edge[0] == target:
                    self.emit[edge] *= grows
            k[target] += 1
            given_.append((target, machines[slot % len(machines)]))
        return given_

    def scale_in(self, held, count):
        """Algorithm 3 as often as machines are to go; `held`: machine -> its instances, in order."""
        held, gone = {m: list(x) for m, x in held.items()}, []
        for _ in range(count):
            worth = {m: sum((self.find_etp(o) for o, _ in x), Fraction(0)) for m, x in held.items()}
            ranked = sorted(held, key=lambda m: (worth[m], len(held[m]), m))
            first, others = ranked[0], ranked[1:]
            leaving = sorted(held.pop(first), key=lambda i: (self.operators.index(i[0]), i[1]))
            for j, instance in enumerate(leaving):
                held[others[j % len(others)]].append(instance)
            gone.append(first)
        return gone, {i: m for m, x in held.items() for i in x}


@st.composite
def jobs(draw):
    """A connected acyclic graph whose rates are small whole numbers, so that ties and boundaries are common."""
    n = draw(st.integers(2, 8))
    edges = sorted({(p, c) for c in range(1, n) for p in draw(st.sets(st.integers(0, c - 1), min_size=1, max_size=3))})
    emit = {edge: draw(st.integers(0, 12)) for edge in edges}
    processing = {o: draw(st.integers(0, 10)) for o in range(n)}
    outside = {0: draw(st.integers(0, 20))}
    executors = {o: draw(st.integers(1, 4)) for o in range(n)}
    return edges, emit, outside, processing, executors


def _both(job, rate):
    edges, emit, outside, processing, executors = job
    order = etp.as_graph(edges).order
    assert all(order.index(p) < order.index(c) for p, c in edges)
    return edges, Paper(order, emit, outside, processing, rate), etp.Rates(processing, emit, outside), executors


@given(jobs(), RATES, st.booleans())
def test_etp_of_both_agree(job, rate, literal):
    edges, paper, measured, _ = _both(job, rate)
    ours = etp.etp(edges, measured, float(rate), tree_sum=literal)
    assert etp.congested(edges, measured, float(rate)) == tuple(o for o in paper.operators if paper.congested(o))
    for o in paper.operators:
        assert math.isclose(ours[o], paper.find_etp(o, literal), abs_tol=1e-12)


@settings(max_examples=150)
@given(jobs(), RATES, st.booleans(), st.integers(0, 12), st.integers(1, 3), st.data())
def test_scale_out_of_both_agrees(job, rate, literal, slots, new, data):
    edges, paper, measured, executors = _both(job, rate)
    tasks = {o: k + data.draw(st.integers(0, 4)) for o, k in executors.items()}
    machines = [f"new-{i}" for i in range(new)]
    ours = etp.scale_out(
        edges, measured, executors, machines, slots, limits=tasks, congestion_rate=float(rate), tree_sum=literal
    )
    assert [(s.operator, s.machine) for s in ours] == paper.scale_out(executors, tasks, slots, machines, literal)
    if ours:
        last = ours[-1]
        assert math.isclose(last.processing_rate, paper.processing[last.operator], rel_tol=1e-9)


@given(jobs(), RATES, st.integers(2, 6), st.data())
def test_scale_in_of_both_agrees(job, rate, machines, data):
    edges, paper, measured, executors = _both(job, rate)
    names = [f"node-{i}" for i in range(machines)]
    places = {(o, i): data.draw(st.sampled_from(names)) for o in paper.operators for i in range(executors[o])}
    count = data.draw(st.integers(0, machines - 1))
    held = {m: [i for i, at in places.items() if at == m] for m in names}
    ours = etp.scale_in(edges, places, etp.etp(edges, measured, float(rate)), count, machines=names)
    gone, after = paper.scale_in(held, count)
    assert [r.machine for r in ours] == gone
    for removal in ours:
        places |= removal.moves
    assert places == after
