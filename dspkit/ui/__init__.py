"""Views for notebooks, with sliders, buttons and charts. The only package that imports ipywidgets."""

from .comparison import Compare, CompareSettings
from .explorer import Explorer
from .forms import OwnApp, OwnData
from .graph import EtpPicker, TopologySettings, TopologyView
from .lesson import Lesson
from .live import Live
from .sensitivity import Sensitivity
from .settings import LiveSettings, Settings

__all__ = [
    "Compare", "CompareSettings", "EtpPicker", "Explorer", "Lesson", "Live", "LiveSettings", "OwnApp", "OwnData",
    "Sensitivity", "Settings", "TopologySettings", "TopologyView",
]  # fmt: skip
