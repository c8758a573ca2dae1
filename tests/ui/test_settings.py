"""Settings of views: printed as code, read back without running it, saved in reports; loads and plants to pick."""

import contextlib
import html
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dspkit import DspkitError, apps, policies, run, ui, workload
from dspkit.core import Knobs, call, knob, knobs_of
from dspkit.core import parameters as literal
from dspkit.core.parameters import code_of, is_printed_code
from dspkit.experiment import Experiment
from dspkit.forecasting import MovingAverage
from dspkit.policies.ds2 import DS2
from dspkit.policies.guards import Cooldown, Predictive
from dspkit.simulator import VARIANTS, variant
from dspkit.ui.controls import SHAPES

plain = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3).map(tuple) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@dataclass(frozen=True)
class Held(Knobs):
    thing: object = None


@given(plain)
def test_what_call_prints_is_read_back(thing):
    assert literal.read_literal(call(Held(thing)), {"Held": Held}) == Held(thing)


EVIL = [
    "__import__('os').system('id')", "().__class__", "open('/etc/passwd')", "Held.__init__", "[x for x in (1,)]",
    "Held(*(1,))", "Held(**{'thing': 1})", "lambda: 1", "f'{1}'", "(a := 1)", "Held", "1 + 1", "{**{}}", "float('nan')",
    "Held(1, 2, 3)", "Held(typo=1)", "b'bytes'", "import os", "", "(" * 500, "9" * 200_000, "Held(thing=print(1))",
]  # fmt: skip


@pytest.mark.parametrize("text", EVIL, ids=range(len(EVIL)))
def test_all_else_is_refused_in_words(text):
    with pytest.raises(literal.LiteralError, match="expected"):
        literal.read_literal(text, {"Held": Held})


@given(st.text(max_size=60))
def test_no_text_does_more_than_be_refused(text):
    with contextlib.suppress(literal.LiteralError):
        literal.read_literal(text, {})


POLICIES = [*(make() for make in policies.available().values()), Cooldown(DS2(activation=2), cooldown_s=math.pi)]
POLICIES.append(Predictive(Cooldown(DS2()), MovingAverage()))


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_settings_of_every_policy_are_read_back(policy):
    settings = ui.Settings("star", policy, parallelism={"bolt": 2}, workload=workload.Sine() * 2, plant="noisy")
    assert ui.Settings.load(repr(settings)) == settings
    compare = ui.CompareSettings("star", (policy, DS2()), changes={"pause_s": 3.0})
    assert ui.CompareSettings.load(str(compare)) == compare


@dataclass(frozen=True)
class Mine(Knobs):
    name: ClassVar[str] = "mine"
    share: float = knob(0.5, "a share", low=0.0, high=1.0)

    def init(self, topology, seed=0):
        return None

    def step(self, state, snapshot):
        raise NotImplementedError


def test_a_policy_of_ones_own_is_read_back_where_it_is_known():
    settings = ui.LiveSettings(Mine(share=0.25))
    with pytest.raises(DspkitError, match="Mine"):
        ui.LiveSettings.load(repr(settings))
    assert ui.LiveSettings.load(repr(settings), [Mine]) == settings
    with pytest.raises(DspkitError, match=r"expected Settings\(\.\.\.\)"):
        ui.Settings.load(repr(settings), [Mine])


def test_the_settings_of_a_report_make_its_run_again():
    first = ui.Explorer("star", "static", windows=6, speed=0)
    first.loads.pick.value = "wave"
    first.loads["period_s"].value = 30
    first.plants.pick.value = "noisy"
    first.plants["pause_s"].value = 20
    first._sliders["bolt"].value = 3
    first.start()
    assert first.wait(300)
    text = first.export().read_text()
    again = ui.Explorer(windows=3, speed=0)
    printed = text.split("<pre>Settings(")[1].split("</pre>")[0]
    again.use(f"Settings({html.unescape(printed)}")
    assert again.settings == first.settings
    assert (again.loads.pick.value, again.plants.pick.value) == ("wave", "noisy")
    assert again._sliders["bolt"].value == 3
    again.start()
    assert again.wait(300)
    assert again.error == first.error == ""
    rates = [h.application.throughput.tolist() for h in (first.history, again.history)]
    assert rates[0] == rates[1]


def test_pasted_settings_are_taken_and_nonsense_is_a_line():
    explorer = ui.Explorer(windows=3, speed=0)
    explorer.view.settings.value = "Settings('star', DS2(activation=4), target_latency_s=7.5)"
    assert explorer.error == ""
    assert (explorer.settings.app, explorer.view.target.value) == ("star", 7.5)
    assert explorer._panel["activation"].value == 4
    for nonsense in ("Settings(", "Settings('typo', DS2())", "DS2()", "Settings('star', DS2(activation=0))"):
        explorer.view.settings.value = nonsense
        assert "dspkit-error" in explorer.error
        assert explorer.settings.app == "star"
    explorer.view.settings.value = "Settings('word_count', Static())"
    assert explorer.error == ""


WRONG = [
    "policy='ds2'", "policy=None", "policy=Sine()", "windows='x'", "windows=-3", "windows=0", "windows=2.5", "seed='a'",
    "settle=-1", "settle=True", "scale='2'", "scale=float('inf')", "target_latency_s=None", "target_latency_s=0",
    "target_latency_s=float('inf')", "window_s=0", "workload=3", "plant=7", "plant='typo'", "changes=3",
    "changes={'typo': 1}", "app=['star']", "{[1]: 2}",
]  # fmt: skip


@pytest.mark.parametrize("wrong", [*WRONG, "parallelism=[1]"])
def test_what_no_run_can_have_is_a_line_and_changes_nothing(wrong):
    given = {"app": "'star'", "policy": "DS2()", **_named(wrong)}
    explorer = ui.Explorer("star", "static", windows=3, speed=0)
    before = explorer.settings
    explorer.view.settings.value = _written("Settings", given, wrong)
    assert "expected" in explorer.error
    assert explorer.settings == before
    with pytest.raises(DspkitError):
        explorer.use(_written("Settings", given, wrong))


@pytest.fixture(scope="module")
def page():
    page = ui.Compare("star", ("ds2", "static"), windows=2)
    assert page.wait(300)
    return page


@pytest.mark.parametrize("wrong", [*WRONG, "policies=(1, 2)", "policies=3", "policies=[DS2(), Static()]"])
def test_a_comparison_takes_no_nonsense_either(page, wrong):
    before = page.settings
    given = {"app": "'star'", "policies": "(DS2(), Static())", **_named(wrong)}
    page.pasted.value = _written("CompareSettings", given, wrong)
    assert "dspkit-error" in page.error
    assert "expected" in page.error
    assert page.settings == before


def _named(wrong):
    return {} if wrong.startswith("{") else dict([wrong.split("=", 1)])


def _written(name, given, wrong):
    return wrong if wrong.startswith("{") else f"{name}({', '.join(f'{k}={v}' for k, v in given.items())})"


def test_controls_reach_what_was_pasted():
    explorer = ui.Explorer("star", "static", windows=3, speed=0)
    explorer.use("Settings('star', DS2(), settle=40, target_latency_s=0.004)")
    explorer.view.scale.value = 2.0
    assert (explorer.settings.settle, explorer.settings.target_latency_s) == (40, 0.004)
    page = ui.Compare("star", ("ds2", "static"), windows=2)
    page.pasted.value = (
        "CompareSettings('star', (DS2(), Static()), windows=2, seed=500, scale=7.0, target_latency_s=9.0)"
    )
    assert page.wait(300)
    assert page.error == ""
    assert (page.seed.value, page.scale.value, page.target.value) == (500, 7.0, 9.0)
    assert (page.settings.seed, page.settings.scale, page.settings.target_latency_s) == (500, 7.0, 9.0)


def test_a_comparison_that_cannot_be_drawn_says_so_in_a_line(monkeypatch):
    def broken(*_, **__):
        raise ZeroDivisionError("no picture")

    monkeypatch.setattr(ui.comparison.plots, "managed", broken)
    page = ui.Compare("star", ("ds2", "static"), windows=2)
    assert page.wait(300)
    assert "ZeroDivisionError: no picture" in page.error


@pytest.mark.parametrize("app", ["word_count", "star", "taxi"])
def test_every_load_can_be_picked_with_sliders_for_it(app):
    explorer = ui.Explorer(app, windows=4, speed=0)
    own = explorer._now.load.rate(1.0)
    for name, kind in SHAPES.items():
        explorer.loads.pick.value = name
        assert isinstance(explorer.settings.workload, kind)
        drawn = [explorer.loads[k.name] for k in knobs_of(kind)]
        assert all(c.max > c.min for c in drawn)
        assert explorer._now.load.rate(1.0) > own / 50  # of the height of the application's own
    explorer.start()
    assert explorer.wait(300)
    assert explorer.error == ""
    explorer.loads.pick.value = "its own"
    assert explorer.settings.workload is None
    assert explorer._now.load.rate(1.0) == own


def test_plants_differ_in_what_their_names_say():
    plant = apps.word_count().plant
    assert variant(plant) == plant
    cores = {name: sum(n.cores for n in variant(plant, name).nodes.values()) for name in VARIANTS}
    assert cores["half the cores"] * 4 == cores["twice the cores"] == 2 * cores["as it is"]
    load = workload.Constant(1e9)
    done = {
        name: apps.word_count().under(load, variant(plant, name)).simulator().observe().throughput
        for name in ("as it is", "one slow node")
    }
    assert done["one slow node"] <= done["as it is"]
    with pytest.raises(DspkitError, match="expected one of as it is"):
        variant(plant, "typo")


def test_thresholds_are_lines_that_move_in_the_picture_of_a_finished_run():
    explorer = ui.Explorer("word_count", "elastic_storm", windows=4, speed=0)
    explorer.start()
    assert explorer.wait(300)
    assert _line(explorer, "scale out above") == 0.7
    explorer._panel["scale_out_above"].value = 0.9
    assert _line(explorer, "scale out above") == 0.9


def _line(explorer, name):
    row, value = explorer.view.cockpit.head["lines"][name]
    assert row == "busy"
    return value


def test_live_runs_any_backend_and_closes_it():
    closed = []

    class Backend:
        def __init__(self):
            self._inner = apps.star().simulator()

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def __enter__(self):
            return self

        def __exit__(self, *_):
            closed.append(self)

    live = ui.Live(Backend, "ds2", windows=5)
    live.start()
    assert live.wait(300)
    assert (live.error, len(live.history), len(closed)) == ("", 5, 1)
    assert "with backend() as job:" in live.settings.code()
    live.start()
    assert live.wait(300)
    assert len(closed) == 2
    with pytest.raises(DspkitError, match="put lambda"):
        ui.Live(apps.star().simulator())


def test_a_comparison_runs_all_on_the_same_and_is_the_code_it_shows():
    page = ui.Compare("star", ("ds2", "static"), windows=12, seed=4)
    assert page.wait(300)
    page.picks[2].value = "elysium"
    page.scale.value = 1.5
    assert page.wait(300)
    assert page.error == ""
    assert list(page.runs) == ["A: ds2", "B: static", "C: elysium"]
    loads = [history.application.source_rate.tolist() for history in page.runs.values()]
    assert loads[0] == loads[1] == loads[2]
    names: dict = {}
    exec(page.settings.code(), names)  # ours, and the point of the test
    same = {name: h.application.throughput.tolist() for name, h in names["runs"].items()}
    assert same == {name: h.application.throughput.tolist() for name, h in page.runs.items()}
    assert page.scores.loc["B: static", "changes"] == 0
    assert "C: elysium" in page._table.outputs[0]["data"]["text/html"]
    page.export_button.click()
    assert page.error == ""
    text = page.report_path.read_text()
    assert "CompareSettings(" in text
    assert "Three steps is all you need" in text  # DS2's paper
    page.picks[2].value = "nobody"
    page.picks[0].value = "drs"
    assert page.wait(300)
    assert list(page.runs) == ["A: drs", "B: static"]
    for wrong in ((DS2(),), (DS2(),) * 5):
        with pytest.raises(DspkitError, match="two to four"):
            ui.CompareSettings("star", wrong)


def test_the_graph_of_a_run_shows_each_window_and_congestion_by_shape():
    from dspkit.etp import congested

    app = apps.word_count()
    history = run(policies.get("static")(), app.simulator(), steps=8)
    view = ui.TopologyView(history)
    view.window.value = 2
    snapshot = history[2].snapshot
    stuck = congested(history.topology, snapshot, view.settings.congestion_rate)
    view.rate.value = 1.0
    stuck = congested(history.topology, snapshot, 1.0)
    symbols = _symbols(view)
    assert {n for n, symbol in symbols.items() if symbol == "octagon"} == set(stuck)
    assert "history[2].snapshot, congestion_rate=1)" in view.settings.code()
    assert ui.TopologySettings.load(repr(view.settings)) == view.settings
    with pytest.raises(DspkitError, match="expected 0 to 7"):
        view.use(ui.TopologySettings(window=8))
    view.pasted.value = "TopologySettings(window=5)"
    assert (view.window.value, view.rate.value, view.error) == (5, 1.2, "")
    view.pasted.value = "TopologySettings(window=8)"
    assert "expected 0 to 7" in view.error
    assert view.settings.window == 5


def _symbols(view):
    data = view.picture.spec["data"]
    groups = [t for t in data if t.get("name") in ("source", "operator", "sink")]
    return {
        text.split(" ×")[0]: t["marker"]["symbol"][i] for t in groups for i, text in enumerate(t["hovertext"])
    }  # fmt: skip


WORDS = st.text(max_size=12) | st.sampled_from(
    ["x(); __import__('os').system('id')  #", "star()\n!id\n#", "a\x1b[2J", "a\u202eb", "'", '"', "\\", "a\n\nb", "{}"]
)
LEAVES = st.none() | st.booleans() | st.integers() | st.floats() | WORDS
HOSTILE = st.recursive(LEAVES, lambda v: st.dictionaries(WORDS, v, max_size=2) | st.tuples(v, v), max_leaves=4)
LOADS = st.one_of(
    st.builds(workload.Constant, st.floats(0, 1e9)),
    st.builds(lambda n: workload.Trace(tuple(range(n)), (1.0,) * n), st.sampled_from([2, 30])),
    st.builds(lambda rate: workload.Sine() * rate + workload.Constant(3), st.floats(0, 1e9)),
)


@given(
    st.fixed_dictionaries(
        {"app": WORDS | st.sampled_from(["star", "word_count", "mine"]) | HOSTILE},
        optional={
            "scale": HOSTILE | st.floats(0, 1e9),
            "windows": HOSTILE | st.integers(1, 500),
            "seed": HOSTILE | st.integers(0, 2**63),
            "window_s": HOSTILE | st.floats(0, 1e9),
            "plant": WORDS | st.sampled_from(sorted(VARIANTS)),
            "changes": HOSTILE | st.dictionaries(WORDS | st.sampled_from(["pause_s", "noise"]), HOSTILE, max_size=2),
            "options": HOSTILE | st.dictionaries(WORDS | st.sampled_from(["engine", "tick_s"]), HOSTILE, max_size=2),
            "parallelism": HOSTILE | st.dictionaries(WORDS, st.integers(1, 9), max_size=2),
            "backend": HOSTILE | st.sampled_from(["simulated", "given"]),
            "workload": st.none() | LOADS | HOSTILE,
        },
    ),
    st.sampled_from(POLICIES),
)
def test_what_settings_print_is_calls_of_known_names_with_literals(given_fields, policy):
    """Or they are refused, also if they come as text."""
    shared = {k: v for k, v in given_fields.items() if k not in ("options", "parallelism", "backend")}
    _check_code(ui.Settings, {**given_fields, "policy": policy})
    _check_code(ui.CompareSettings, {**shared, "policies": (policy, DS2())})


def _check_code(kind, values):
    text = f"{kind.__name__}({', '.join(f'{k}={code_of(v)}' for k, v in values.items())})"
    for make in (lambda: kind(**values), lambda: kind.load(text)):
        said = ""
        try:
            code = make().code()
        except DspkitError as error:
            code, said = "", str(error)
        assert not set("\x1b\u202e") & set(code + said)
        assert "!id" not in code.splitlines()
        if "<30 values" in code:  # a summary, which no Python takes
            with pytest.raises(SyntaxError):
                compile(code, "code", "exec")
        else:
            assert is_printed_code(code), code


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p.name)
def test_what_dspkit_prints_is_recognised(policy):
    settings = ui.Settings("star", policy, workload=workload.Sine() * 2, plant="noisy", changes={"pause_s": 3.0})
    assert is_printed_code(settings.code())
    assert is_printed_code(ui.LiveSettings(policy).code())
    assert is_printed_code(ui.Settings("word_count", policy, backend="spark", workload=workload.Sine()).code())
    assert is_printed_code(ui.CompareSettings("star", (policy, DS2()), changes={"pause_s": 3.0}).code())
    assert is_printed_code(Experiment(apps.star().under(workload.Constant(9)), policy).code())


@pytest.mark.parametrize(
    "code",
    [
        "import os", "from os import system", "from dspkit.core.files import os", "from dspkit import core",
        "from dspkit import apps\napps.importlib.import_module('os').system('id')", "apps.star()", "eval('1')",
        "from dspkit.core.files import Path\nPath('x').unlink()", "from dspkit import apps as run", "app = 1 + 1",
        "from dspkit import apps\nos = apps.star()", "from dspkit import apps\napps.__init__()", "f'{app}'",
        "from dspkit import run\nrun(*(1,))", "from dspkit import run\nrun(**{'a': 1})", "def app(): pass", "!id",
        "from dspkit import workload\nworkload.np.load('x')", "lambda: 1", "(" * 5000, "\0", "[x for x in (1,)]",
        "from dspkit import run\nwith backend() as job:\n    import os", "from . import apps", "app = (b'x',)",
    ],
)  # fmt: skip
def test_other_code_is_not_taken_for_printed_code(code):
    assert not is_printed_code(code)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("DS2(activation=1, activation=2)", "each argument once"),
        ("Settings('star', DS2(), changes={'noise': 0.1, 'noise': 0.2})", "each key once"),
        ("Settings('star', DS2(), windows=999999999)", "from 1 to 1e"),
        (f"Settings('star', DS2(), seed=0x{'f' * 8000})", "Settings.seed"),
        (f"Settings('star', DS2(), scale=0x{'f' * 8000})", "Settings.scale"),
        ("Settings('star', DS2(), changes={'noise=0.1); import os; (x': 1})", "fields of a plant"),
        ('Settings(\'x(); __import__("os").system("id") #\', DS2())', "the name of an application"),
        (None, "a text"),
        (b"Settings('star', DS2())", "a text"),
    ],
)
def test_hostile_settings_are_refused_in_words(text, said):
    with pytest.raises(DspkitError, match=said):
        ui.Settings.load(text)
