"""Controls for notebooks. The only place that knows ipywidgets."""

from .days import TwoDays
from .explorer import Explorer
from .lesson import Lesson
from .live import LiveExplorer
from .picker import EtpPicker
from .sensitivity import Sensitivity
from .settings import Settings

__all__ = ["EtpPicker", "Explorer", "Lesson", "LiveExplorer", "Sensitivity", "Settings", "TwoDays"]
