"""ELYSIUM's profilers, estimator and decision: costs of operators learned from a run, and the deployment for a load.

>>> from dspkit import apps, run
>>> from dspkit.policies.static import Static
>>> app = apps.rolling_top_words()
>>> learned = learn(run(Static(), app.simulator(), steps=100))
>>> config = compute_config(Estimator(app.topology, learned), 200)
>>> config.workers, config.parallelism["stop_word_filter"]
(2, 3)
"""

from .configuration import Config, LearnedThreshold, compute_config, learn_threshold, reward
from .curves import KINDS, Line, Net, Points, fit_curve
from .estimator import Estimator
from .profiles import Profile, Samples, errors, learn, load_profile, samples

__all__ = [
    "KINDS", "Config", "Estimator", "LearnedThreshold", "Line", "Net", "Points", "Profile", "Samples", "compute_config",
    "errors", "fit_curve", "learn", "learn_threshold", "load_profile", "reward", "samples",
]  # fmt: skip
