"""Estimation of the system behind a recorded run: service times, scalability, selectivities, pauses, with intervals."""

from __future__ import annotations

from .fit import Estimate, Fit, fit
from .live import FULL, fit_live, keeps_up, predict

__all__ = ["FULL", "Estimate", "Fit", "fit", "fit_live", "keeps_up", "predict"]
