"""The contracts of policies and backends as public checks.

>>> from dspkit.policies import DS2
>>> check_policy(DS2(), examples=0)
>>> from dspkit import apps
>>> check_backend(apps.star().simulator)

Each rule is a function, so that a test suite shows one line per rule:

    @pytest.mark.parametrize("check", dspkit.testing.POLICY_CHECKS)
    def test_my_policy(check):
        check(MyPolicy())
"""

from __future__ import annotations

from .contracts import BACKEND_CHECKS, POLICY_CHECKS, ContractError, check_backend, check_policy, decisions_fit

__all__ = ["BACKEND_CHECKS", "POLICY_CHECKS", "ContractError", "check_backend", "check_policy", "decisions_fit"]
