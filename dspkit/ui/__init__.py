"""Controls for notebooks. The only place that knows ipywidgets."""

from .days import TwoDays
from .explorer import Explorer
from .lesson import Lesson
from .live import Live
from .live_explorer import LiveExplorer
from .picker import EtpPicker
from .sensitivity import Sensitivity
from .settings import LiveSettings, Settings

__all__ = [
    "EtpPicker", "Explorer", "Lesson", "Live", "LiveExplorer", "LiveSettings", "Sensitivity", "Settings", "TwoDays",
]  # fmt: skip
