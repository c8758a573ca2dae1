"""Controls for notebooks. The only place that knows ipywidgets."""

from .compare import Compare
from .comparing import CompareSettings
from .days import TwoDays
from .explorer import Explorer
from .lesson import Lesson
from .live import Live
from .live_explorer import JobSettings, LiveExplorer
from .picker import EtpPicker
from .sensitivity import Sensitivity
from .settings import LiveSettings, Settings
from .topology import TopologySettings, TopologyView

__all__ = [
    "Compare", "CompareSettings", "EtpPicker", "Explorer", "JobSettings", "Lesson", "Live", "LiveExplorer",
    "LiveSettings", "Sensitivity", "Settings", "TopologySettings", "TopologyView", "TwoDays",
]  # fmt: skip
