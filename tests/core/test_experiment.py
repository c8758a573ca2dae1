"""Runs by name, class or instance, on applications and backends; experiments that print as code."""

from dataclasses import dataclass, replace

import pytest

from dspkit import Decision, Experiment, Simulator, apps, policies, run, workload
from dspkit.core import ArgumentError, BackendError, FrozenMap, NotFoundError
from dspkit.core import run as run_loop
from dspkit.core.policy import PolicyError
from dspkit.experiment import STEPS
from dspkit.policies import DS2, Cooldown, Static


@dataclass(frozen=True)
class Mine:
    name = "mine"

    def init(self, topology, seed=0):
        return None

    def step(self, state, snapshot):
        return state, Decision(snapshot.deployment)


def slowly(app):
    return app.simulator(window_s=20.0)


@pytest.mark.parametrize("policy", ["ds2", DS2, DS2()], ids=["name", "class", "instance"])
@pytest.mark.parametrize("on", ["word_count", apps.word_count(), None], ids=["name", "app", "backend"])
def test_names_classes_instances_apps_and_backends_give_the_same_run(policy, on):
    backend = apps.word_count().simulator(seed=3) if on is None else on
    whole = run_loop(DS2(), apps.word_count().simulator(seed=3), steps=5, seed=3)
    assert run(policy, backend, steps=5, seed=3) == whole


def test_a_backend_stays_open_and_an_application_runs_for_ninety_windows():
    backend = apps.star().simulator()
    run("static", backend, steps=2)
    assert backend.observe().t == 30.0
    assert len(run("static", "star")) == STEPS


def test_options_and_a_load_go_to_the_simulator_of_an_application():
    history = run("static", "star", steps=2, window_s=5.0, parallelism=2, load=workload.Constant(7.0))
    assert history[-1].snapshot.t == 10.0
    assert history[-1].snapshot.source_rate == pytest.approx(7.0)
    assert set(history[-1].snapshot.deployment.parallelism.values()) == {2}


class Bare:
    pass


@pytest.mark.parametrize(
    ("policy", "on", "kind", "message"),
    [
        ("ds3", "star", NotFoundError, "got policy 'ds3'.*did you mean 'ds2'"),
        ("ds2", "word_cuont", NotFoundError, "got application 'word_cuont'.*did you mean 'word_count'"),
        (Cooldown, "star", PolicyError, "the class Cooldown, which cannot be made without policy"),
        (3, "star", PolicyError, "got int 3; expected a policy, its class or its name; as in"),
        (Bare, "star", PolicyError, "got the class Bare; expected a policy"),
        (apps.star(), DS2(), PolicyError, "the policy comes first, then what it runs on"),
        (
            "ds2",
            apps.star,
            ArgumentError,
            r"got the function star; expected a backend, an app.*call it, as in star\(",
        ),
        ("ds2", Simulator, ArgumentError, "got the class Simulator; expected a backend, an application"),
        ("ds2", None, ArgumentError, "got NoneType None; expected a backend"),
        ("ds2", DS2(), ArgumentError, "the policy comes first"),
    ],
)
def test_what_cannot_run_is_refused_in_words(policy, on, kind, message):
    with pytest.raises(kind, match=message):
        run(policy, on, steps=1)


def test_options_of_a_simulator_are_refused_beside_a_backend():
    with pytest.raises(ArgumentError, match="got window_s, load beside a backend"):
        run("ds2", apps.star().simulator(), steps=1, window_s=5, load=workload.Constant(1))


@pytest.mark.parametrize(
    "experiment",
    [
        Experiment("word_count", "ds2", steps=6),
        Experiment("star", DS2(activation=2), load=workload.Sine(100, 50, 300), steps=5, window_s=5, settle=1, seed=7),
        Experiment("star", Cooldown(DS2(), cooldown_s=30.0), steps=4, options={"parallelism": 2, "tick_s": 1.0}),
        Experiment("star", Mine, slowly, steps=3),
        Experiment(apps.star().under(workload.Sine(90, 9), replace(apps.star().plant, noise=0.2)), "ds2"),
        Experiment(apps.star(), "ds2"),
        Experiment(replace(apps.star(), name="my own", live=None), "ds2", steps=2),
    ],
    ids=["plain", "load", "guard", "maker", "under", "app", "own"],
)
def test_the_code_of_an_experiment_makes_the_same_run(experiment):
    space = {}
    exec(experiment.code(), space)
    assert space["history"] == experiment.run()


def test_an_experiment_is_played_step_by_step_and_closes_its_backend():
    made = []

    def maker(app):
        made.append(app.simulator())
        return made[0]

    history, steps = Experiment("star", Static, maker, steps=3).begin()
    assert [(step.index, len(history)) for step in steps] == [(0, 1), (1, 2), (2, 3)]
    with pytest.raises(BackendError, match="after close"):
        made[0].observe()


def test_an_experiment_whose_policy_needs_more_leaves_no_backend_open():
    class Few(Simulator):
        knobs = frozenset({"parallelism"})

    made = []

    def maker(app):
        made.append(Few(app.topology, app.plant, app.workload))
        return made[0]

    with pytest.raises(PolicyError, match="'traffic_aware' on Few, which cannot change placement"):
        Experiment("star", "traffic_aware", maker).run()
    with pytest.raises(BackendError, match="after close"):
        made[0].observe()


def test_experiments_refuse_backends_in_words():
    with pytest.raises(BackendError, match="got backend 'sparc'; expected 'simulated' or 'spark', or a function"):
        Experiment("star", "ds2", "sparc")
    with pytest.raises(BackendError, match="got NoneType None; expected a backend"):
        Experiment("star", "ds2", lambda app: None).run()

    class Simulated:
        def simulator(self, **options):
            return apps.star().simulator(**options)

    with pytest.raises(BackendError, match=r"got backend 'spark' of an application without one; .*'simulated'"):
        Experiment(Simulated(), "ds2", "spark").open()


def test_the_live_side_of_an_application_gets_the_load_the_window_and_the_options():
    class Both:
        def spark(self, load=None, **options):
            assert (load, options) == (workload.Constant(3.0), {"window_s": 2.0, "workers": 2})
            return apps.star().simulator()

    assert len(Experiment(Both(), Static(), "spark", load=workload.Constant(3.0), steps=2, window_s=2.0,
                          options={"workers": 2}).run()) == 2  # fmt: skip


def test_an_experiment_is_frozen_and_can_be_changed_as_a_copy():
    experiment = Experiment("star", "ds2", steps=4)
    assert replace(experiment, seed=2).seed == 2
    assert isinstance(experiment.options, FrozenMap)
    assert repr(experiment) == "Experiment(app='star', policy=DS2(), steps=4)"
    assert policies.get("ds2")() == experiment.policy


@pytest.mark.spark
@pytest.mark.slow
def test_an_application_by_name_runs_live_too():
    import live

    settings = {"spark": live.spark("realtime"), "epoch_s": 30.0}
    history = Experiment("word_count", "ds2", "spark", steps=4, window_s=2.0, settle=1, options=settings).run()
    assert len(history) == 4
    assert history[-1].snapshot.window_s > 1.6  # longer on a busy machine
    assert history[-1].snapshot.source_rate > 0
