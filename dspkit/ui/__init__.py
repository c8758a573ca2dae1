"""Controls for notebooks. The only place that knows ipywidgets."""

from .explorer import Explorer
from .sensitivity import Sensitivity
from .settings import Settings

__all__ = ["Explorer", "Sensitivity", "Settings"]
