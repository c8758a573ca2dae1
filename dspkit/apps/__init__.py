"""Applications for live Spark: small, with real functions, and a service time that can be set."""

from __future__ import annotations

from collections.abc import Callable

from .base import LiveApp, audit, rehearse

__all__ = ["LiveApp", "audit", "available", "rehearse"]


def available() -> dict[str, Callable[[], LiveApp]]:
    """Every application by its name.

    >>> sorted(available())
    ['logs', 'nexmark_q1', 'nexmark_q11', 'nexmark_q5', 'taxi', 'tweets', 'word_count', 'yahoo']
    """
    from . import logs, nexmark, taxi, tweets, word_count, yahoo

    made = {"nexmark_q1": nexmark.q1, "nexmark_q5": nexmark.q5, "nexmark_q11": nexmark.q11}
    return made | {m.__name__.rpartition(".")[2]: m.app for m in (logs, taxi, tweets, word_count, yahoo)}
