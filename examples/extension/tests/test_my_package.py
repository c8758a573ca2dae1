"""The policy keeps dspkit's rules, and controls the application by their names."""

from my_package.policies import OneMore

from dspkit import run
from dspkit.testing import check_policy


def test_the_policy_keeps_the_rules() -> None:
    check_policy(OneMore(), examples=20)


def test_the_policy_controls_the_application() -> None:
    history = run("one_more", "parcels", steps=60)
    assert history[-1].deployment.parallelism["sort"] > 3
