"""The error of a broken contract, and the decorator of the checks that raise it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

from ..core import DspkitError

C = TypeVar("C", bound=Callable[..., None])


class ContractError(DspkitError, AssertionError):
    """A policy or a backend that breaks a rule; the message names both."""


def require(kept: bool, got: str, *, expected: str, fix: str) -> None:
    """Raise a ContractError unless the rule is kept."""
    if not kept:
        raise ContractError(got, expected=expected, fix=fix)


def rule(check: C) -> C:
    """Add the name of the check and its rule to its failures, whatever exception is raised."""

    @functools.wraps(check)
    def named(thing: Any, *args: Any, **options: Any) -> None:
        try:
            check(thing, *args, **options)
        except ContractError as error:
            error.add_note(f"{_name(thing)} breaks the rule {check.__name__}: {_sentence(check)}")
            raise
        except Exception as error:
            broken = ContractError(
                f"{type(error).__name__} ({error}) from {_name(thing)}",
                expected=f"none: {check.__name__}",
                fix=_sentence(check),
            )
            raise broken from error

    return named  # type: ignore[return-value]


def _name(thing: Any) -> str:
    name = getattr(thing, "name", None)
    return repr(name) if isinstance(name, str) else type(thing).__name__


def _sentence(check: Any) -> str:
    return (check.__doc__ or "").partition("\n")[0].rstrip(".")
