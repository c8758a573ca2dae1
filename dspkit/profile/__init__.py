"""What an operator costs, learned from a run, and what to run for a load: ELYSIUM's profilers, estimator and decision.

>>> from dspkit import run, topologies
>>> from dspkit.policies.static import Static
>>> app = topologies.rolling_top_words()
>>> learned = learn(run(Static(), app.simulator(), steps=100))
>>> config = compute_config(Estimator(app.topology, learned), 200)
>>> config.workers, config.parallelism["stop_word_filter"]
(2, 3)
"""

from .config import Config, compute_config
from .curves import KINDS, Line, Net, Points, fit_curve
from .estimator import Estimator
from .profile import Profile, errors, learn, load
from .samples import Samples, samples
from .thresholds import Learned, learn_threshold, reward

__all__ = [
    "KINDS", "Config", "Estimator", "Learned", "Line", "Net", "Points", "Profile", "Samples", "compute_config",
    "errors", "fit_curve", "learn", "learn_threshold", "load", "reward", "samples",
]  # fmt: skip
