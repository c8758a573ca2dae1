"""Worker processes again in plain Python, event by event: the record-level engine counts exactly the same.

One instance an operator, services of one length that take no CPU, links without delay, records that come evenly: so
nothing is left to chance. Time is followed from one end of a service, or one arrival, to the next.
"""

import heapq
import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dspkit import Plant
from dspkit.simulator import Node, Service, assign_processes
from dspkit.simulator.layout import index_topology, layout
from dspkit.simulator.records.engine import RecordEngine
from dspkit.testing.strategies import topologies

WINDOW_S = 5.0


class Model:
    """Each operator is "idle", at "work" or at "send"; `row` are those held back before a full queue, longest first."""

    def __init__(self, topology, plant, process, rate):
        self.topology, self.plant, self.process, self.rate = topology, plant, process, rate
        self.now, self.order, self.events, self.counter = 0.0, topology.order, [], 0
        self.state, self.since = dict.fromkeys(self.order, "idle"), dict.fromkeys(self.order, 0.0)
        self.queue, self.row, self.out = ({o: [] for o in self.order} for _ in range(3))
        self.inbox = {p: [] for p in process.values()}
        self.stuck = {}  # process -> (operator before whose full queue its thread stands, since when)
        self.todo = []  # who goes on before time does: the last one first
        self.forget()
        for source in topology.sources:
            self.at(1 / rate[source], "arrive", source)

    def forget(self):
        self.sums = {o: dict.fromkeys("arrived done dropped busy blocked begun waited".split(), 0) for o in self.order}

    def at(self, time, what, who):
        self.counter += 1
        heapq.heappush(self.events, (time, self.counter, what, who))

    def full(self, o):
        return len(self.queue[o]) + 1 > self.plant.services[o].queue_records and bool(self.topology.upstream(o))

    def begin(self, o, arrived):
        self.state[o], self.since[o] = "work", self.now
        self.sums[o]["begun"] += 1
        self.sums[o]["waited"] += self.now - arrived
        self.at(self.now + self.plant.services[o].seconds_per_record, "end", o)

    def deliver(self, o, arrived):
        if self.state[o] == "idle":
            self.begin(o, arrived)
        else:
            self.queue[o].append(arrived)

    def wake(self, o):
        if self.full(o):
            return
        before, since = self.stuck.get(self.process[o], (None, math.inf))
        if before == o and (not self.row[o] or since <= self.row[o][0][1]):
            self.stuck[self.process[o]] = ("called", 0.0)
            self.todo.append(("thread", o, None))
        elif self.row[o]:
            self.todo.append(("sender", o, self.row[o].pop(0)))

    def serve_inbox(self, p):
        self.stuck.pop(p, None)
        while self.inbox[p]:
            o, arrived = self.inbox[p][0]
            drops = self.plant.services[o].overflow == "drop"
            if self.full(o) and not drops:
                self.stuck[p] = (o, self.now)
                return
            del self.inbox[p][0]
            if self.full(o):
                self.sums[o]["dropped"] += 1
            else:
                self.deliver(o, arrived)

    def send(self, x, held=None):
        """`held`: since when x, whose turn it is now, was held back."""
        while self.out[x]:
            o = self.out[x][0]
            far = self.process[o] != self.process[x]
            refused = self.full(o) and not far and self.plant.services[o].overflow == "drop"
            if self.full(o) and not far and not refused:
                if held is None:
                    self.row[o].append((x, self.now))
                else:
                    self.row[o].insert(0, (x, held))
                return
            del self.out[x][0]
            self.sums[o]["arrived"] += 1
            if refused:
                self.sums[o]["dropped"] += 1
                continue
            if far:
                self.inbox[self.process[o]].append((o, self.now))
                if self.process[o] not in self.stuck:
                    self.serve_inbox(self.process[o])
            else:
                self.deliver(o, self.now)
            held = None
        self.sums[x]["blocked"] += self.now - self.since[x]
        self.sums[x]["done"] += 1
        self.state[x] = "idle"
        if self.queue[x]:
            self.begin(x, self.queue[x].pop(0))
            self.wake(x)

    def play(self, until):
        while self.events and self.events[0][0] < until:
            self.now, _, what, o = heapq.heappop(self.events)
            if what == "arrive":
                self.at(self.now + 1 / self.rate[o], "arrive", o)
                self.sums[o]["arrived"] += 1
                self.deliver(o, self.now)
            else:
                self.sums[o]["busy"] += self.now - self.since[o]
                self.state[o], self.since[o] = "send", self.now
                service = self.plant.services[o]
                self.out[o] = [c for c in self.topology.downstream(o) for _ in range(round(service.toward(c)))]
                self.send(o)
            while self.todo:
                who, q, sender = self.todo.pop()
                if who == "thread":
                    self.serve_inbox(self.process[q])
                else:
                    self.send(*sender)
                self.wake(q)
        self.now = until

    def window(self):
        """For each operator: arrived, done, dropped, waiting or in service, busy, blocked, mean wait."""
        inside = [o for inbox in self.inbox.values() for o, _ in inbox]
        rows = []
        for o, sums in self.sums.items():
            if self.state[o] != "idle":
                sums["busy" if self.state[o] == "work" else "blocked"] += self.now - self.since[o]
                self.since[o] = self.now
            waiting = len(self.queue[o]) + (self.state[o] != "idle") + inside.count(o)
            wait = sums["waited"] / sums["begun"] if sums["begun"] else math.nan
            counts = (sums[x] for x in ("arrived", "done", "dropped"))
            rows.append((*counts, waiting, sums["busy"], sums["blocked"], wait))
        self.forget()
        return rows


@given(st.data())
@settings(max_examples=150)
def test_every_window_of_every_operator_is_the_same(data):
    topology = data.draw(topologies(most=6))
    chance = np.random.default_rng(data.draw(st.integers(0, 10**6)))  # odd numbers: no two things happen at once
    services = {
        o: Service(
            float(chance.uniform(0.01, 0.4)),
            selectivity={c: data.draw(st.sampled_from([0, 1, 1, 1, 2, 3])) for c in topology.downstream(o)},
            distribution="deterministic",
            io_share=1.0,
            queue_records=data.draw(st.sampled_from([1.0, 2.0, 5.0, 11.0])) if topology.upstream(o) else math.inf,
            overflow=data.draw(st.sampled_from(["block", "block", "drop"])) if topology.upstream(o) else "block",
        )
        for o in topology.order
    }
    plant = Plant(services, {"n": Node(), "m": Node()}, processes=data.draw(st.integers(1, 3)))
    places = {(o, 0): data.draw(st.sampled_from(["n", "m"])) for o in topology.order}
    rate = {o: float(chance.uniform(1, 30)) for o in topology.sources}
    assigned = assign_processes(plant, places, {})
    model = Model(topology, plant, {o: process for (o, _), process in assigned.items()}, rate)
    numbers = layout(topology, plant, places, topology.uniform(1), assigned=assigned)
    engine = RecordEngine(index_topology(topology), numbers, np.random.default_rng(0), "even")
    rates = np.array([[rate.get(o, 0.0) for o in topology.order]])
    for w in range(8):
        engine.play(rates, np.array([WINDOW_S]), np.ones(len(topology.order)))
        model.play(WINDOW_S * (w + 1))
        seen = engine.window()
        columns = (seen.arrived, seen.done, seen.dropped, seen.queue, seen.busy, seen.blocked, seen.waited_s)
        np.testing.assert_allclose(np.transpose(columns), model.window(), rtol=1e-6, atol=1e-6)
