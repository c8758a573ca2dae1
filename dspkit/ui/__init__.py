"""Controls for notebooks. The only place that knows ipywidgets."""

from .explorer import Explorer
from .lesson import Lesson
from .settings import Settings

__all__ = ["Explorer", "Lesson", "Settings"]
