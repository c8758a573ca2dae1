"""Streaming applications of the papers, ready to run: structure, plant and a load, one function each.

>>> from dspkit import run, topologies
>>> from dspkit.policies.ds2 import DS2
>>> history = run(DS2(), topologies.word_count().simulator(), steps=4)
>>> history[-1].snapshot.deployment.parallelism
{'source': 1, 'flat_map': 1, 'count': 3, 'sink': 3}
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable

from .app import App
from .autrascale import case_study, crowded_word_count, query5, query11, word_count, yahoo
from .detector import detector
from .distributed_storm import log_processing, storm_word_count, tag_and_count
from .elysium import rolling_top_words, sentiment
from .fission import news_entities, tweet_branches, tweet_words
from .stela import diamond, linear, network_monitoring, page_load, processing, star
from .taxi import TaxiDays, taxi

__all__ = [
    "App", "TaxiDays", "available", "case_study", "crowded_word_count", "detector", "diamond", "linear",
    "log_processing", "network_monitoring", "news_entities", "page_load", "processing", "query5", "query11",
    "rolling_top_words", "sentiment", "star", "storm_word_count", "tag_and_count", "taxi", "tweet_branches",
    "tweet_words", "word_count", "yahoo",
]  # fmt: skip


def available() -> dict[str, Callable[[], App]]:
    """Every application of this module by its name."""
    module = sys.modules[__name__]
    return {
        name: function
        for name, function in sorted(vars(module).items())
        if inspect.isfunction(function) and function.__annotations__.get("return") == "App"
    }
