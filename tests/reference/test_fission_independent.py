"""The self-adaptive graph written a second time, from the paper's pages and in plain Python, beside the policy on the
simulator: pipelines whose queues drop what finds no room, with every count kept here.
"""

import numpy as np
import pytest

from dspkit import apps
from dspkit.comparison import sensitivity
from dspkit.comparison.scores import events_lost
from dspkit.policies.fission import Fission

TICK = 0.5  # s; the simulator's


def _stationary(history):
    """e from the normal equations of e (TM - I) = 0, sum e = 1."""
    count = np.zeros((3, 3))
    for a, b in zip(history[:-1], history[1:], strict=True):
        count[a, b] += 1
    tm = np.array([row / row.sum() if row.sum() else np.full(3, 1 / 3) for row in count])
    system = np.vstack([tm.T - np.eye(3), np.ones(3)])
    return np.linalg.lstsq(system, np.array([0, 0, 0, 1.0]), rcond=None)[0]


def _lost(rates, p1, room, upper=1.0, more=5, mid_term=True):
    """Share of events lost, and what the mid term did to each replica count, by time."""
    ops = range(len(p1))
    n, queue, came, could = [1 for _ in ops], [0.0 for _ in ops], [0.0 for _ in ops], [0.0 for _ in ops]
    state, run, history, done, acted = [None for _ in ops], [0 for _ in ops], [[] for _ in ops], 0.0, {}

    def classify(load):
        return 2 if load > upper else 0 if load < 0.5 else 1

    for second, rate in enumerate(rates, 1):
        arrive = rate
        for i in ops:
            left = 0.0
            for _ in range(round(1 / TICK)):
                work = min(queue[i] + arrive * TICK, n[i] * p1[i] * TICK)
                queue[i] = min(queue[i] + arrive * TICK - work, room * n[i])
                left += work
            came[i] += arrive
            could[i] += n[i] * p1[i]
            history[i].append(classify(arrive / (n[i] * p1[i])))
            arrive = left
        done += arrive
        for i in ops:
            change = 0
            if second % 5 == 0:
                now = classify(came[i] / could[i])
                run[i] = run[i] + 1 if now == state[i] else 1
                state[i], came[i], could[i] = now, 0.0, 0.0
            if mid_term and second % 100 == 0:
                e = _stationary(history[i][-100:])
                best = max(range(3), key=lambda s: (round(e[s], 9), s))
                soon = best if e[best] > e[state[i]] + 0.2 + 1e-9 else state[i]
                if soon != 1:
                    change, run[i] = (more if soon == 2 else -more), 0
                    acted.setdefault(second, {})[i] = max(1, n[i] + change) - n[i]
            if not change and second % 5 == 0 and state[i] != 1 and run[i] == 2:
                change, run[i] = (1 if state[i] == 2 else -1), 0
            n[i] = max(1, n[i] + change)
    return 1 - done / sum(rates), acted


@pytest.mark.parametrize("name", ["tweet_words", "news_entities"])
@pytest.mark.parametrize("knobs", [{}, {"mid_replicas": 8}, {"scale_out_above": 0.8}, {"mid_term": False}], ids=str)
def test_losses_and_decisions_of_both_agree(name, knobs):
    app = apps.available()[name]()
    services = [app.plant.services[o] for o in app.topology.order]
    history = sensitivity.play_policy(app, Fission(**knobs))
    told = {
        "upper": knobs.get("scale_out_above", 1.0),
        "more": knobs.get("mid_replicas", 5),
        "mid_term": "mid_term" not in knobs,
    }
    lost, acted = _lost(
        app.load.rates_per_s, [1 / s.seconds_per_record for s in services], services[0].queue_records, **told
    )
    assert events_lost(history).share == pytest.approx(lost, abs=2e-4)
    changed = {
        int(s.snapshot.t): {
            i: s.decision.deployment.parallelism[o] - s.snapshot.deployment.parallelism[o]
            for i, o in enumerate(app.topology.order)
            if o in s.decision.why["mid-term"]
        }
        for s in history
        if s.decision is not None and "mid-term" in s.decision.why
    }
    assert changed == {t: real for t, by in acted.items() if (real := {i: d for i, d in by.items() if d})}
