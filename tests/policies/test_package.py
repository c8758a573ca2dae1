"""The public face of `dspkit.policies`: classes by name, a table, and policies of other packages."""

import subprocess
import sys

import pytest

from dspkit import policies
from dspkit.core import ArgumentError
from dspkit.core.policy import KNOBS, needs_of

PACKAGE = '''
from dataclasses import dataclass
from dspkit import Decision

@dataclass(frozen=True)
class Mine:
    """Keep what runs."""
    name = "mine"
    def init(self, topology, seed=0): return None
    def step(self, state, snapshot): return state, Decision(snapshot.deployment, {"rule": "mine"})
'''


def test_every_policy_class_is_an_attribute_under_its_own_name():
    for cls in policies.available().values():
        assert getattr(policies, cls.__name__) is cls
        assert cls.__name__ in policies.__all__
    assert policies.Cooldown(policies.DS2()).name == "cooldown(ds2)"
    assert policies.ScaleOut(2).machines == 2
    assert set(policies.__all__) <= set(dir(policies))
    with pytest.raises(AttributeError, match="no attribute 'DS3'"):
        policies.DS3  # noqa: B018


def test_a_class_is_imported_without_the_other_policies():
    code = "import sys; from dspkit.policies import DS2; print(*sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "dspkit.policies.ds2" in out
    assert "dspkit.policies.edrp" not in out


def test_every_policy_says_what_it_needs():
    needs = {name: set(needs_of(cls)) for name, cls in policies.available().items()}
    assert all("needs" in vars(cls) for cls in policies.available().values())
    assert all(fields <= set(KNOBS) for fields in needs.values())
    assert needs["static"] == set()
    assert needs["distributed_storm"] == needs["traffic_aware"] == {"placement"}
    assert needs["rebalance"] == {"workers"}
    assert needs_of(policies.Static(parallelism={"a": 2})) == {"parallelism"}
    assert needs_of(policies.Elysium(scale="nodes")) == {"workers"}
    assert needs_of(policies.Bounded(policies.TrafficAware())) == {"placement"}


def test_the_table_has_a_row_for_each_policy_with_its_first_sentence():
    frame = policies.table()
    assert frame.name.tolist() == list(policies.available())
    assert frame.sentence.str.len().min() > 20
    assert frame.set_index("name").loc["stela", "needs"] == "parallelism, workers"


def test_a_registered_class_is_found_by_its_name_and_as_an_attribute():
    space = {}
    exec(PACKAGE, space)
    try:
        assert policies.register(space["Mine"]) is space["Mine"]
        assert policies.get("mine") is policies.Mine is space["Mine"]
    finally:
        policies.unregister("mine")
    assert "mine" not in policies.available()


@pytest.mark.parametrize(
    ("wrong", "why"),
    [(3, "is no class"), (dict, "is no dataclass"), (policies.Cooldown, "has no name")],
)
def test_what_is_no_policy_class_is_refused(wrong, why):
    with pytest.raises(ArgumentError, match=why):
        policies.register(wrong)


def test_policies_of_another_package_are_found_by_its_entry_points(tmp_path):
    """A real package as pip leaves it: modules, and metadata with entry points. One of its two offers is broken."""
    (tmp_path / "my_policies.py").write_text(PACKAGE)
    info = tmp_path / "my_policies-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: my-policies\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[dspkit.policies]\nmine = my_policies:Mine\nlost = my_policies:Lost\n")
    code = (
        "import dspkit\n"
        "history = dspkit.run(dspkit.policies.get('mine')(), dspkit.apps.star().simulator(), steps=2)\n"
        "print(history[0].decision.why['rule'], dspkit.policies.Mine.__module__, 'ds2' in dspkit.policies.available())"
    )
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{code}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["mine", "my_policies", "True"]
    assert "lost = my_policies:Lost of my-policies is left out: AttributeError" in done.stderr
