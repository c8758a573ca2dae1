"""Controls for notebooks. The only place that knows ipywidgets."""

from .explorer import Explorer
from .settings import Settings

__all__ = ["Explorer", "Settings"]
