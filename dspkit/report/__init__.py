"""Reports: a run, a notebook or sections of your own as one self-contained HTML file, which needs no network.

report.from_history(history)
report.from_notebook("notebooks/00_start.ipynb")
report.write([report.Section("Load", figure=plot)], title="Mine")
"""

from .build import from_history, from_notebook, write
from .page import Section

__all__ = ["Section", "from_history", "from_notebook", "write"]
