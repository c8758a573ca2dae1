"""Controls for notebooks. The only place that knows ipywidgets."""

from .days import TwoDays
from .explorer import Explorer
from .lesson import Lesson
from .picker import EtpPicker
from .sensitivity import Sensitivity
from .settings import Settings

__all__ = [
    "EtpPicker",
    "Explorer",
    "Lesson",
    "Sensitivity",
    "Settings",
    "TwoDays",
]
