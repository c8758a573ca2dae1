"""The start of JupyterLab: the index of the notebooks beside the first of them, and no news.

This script needs only the standard library. `python .ci/workspace.py` sets up the
JupyterLab of this Python: Binder does that.
"""

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path

NAME = "dspkit"
INDEX, START = "notebooks/README.md", "notebooks/00_start.ipynb"
URL = f"/lab/workspaces/{NAME}"
SETTINGS = {
    "@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": False},
    "@jupyterlab/docmanager-extension:plugin": {"defaultViewers": {"markdown": "Markdown Preview"}},
}
# What JupyterLab itself would write down with these two tabs open.
_INDEX, _START = f"markdownviewer-widget:{INDEX}", f"notebook:{START}"
_DOCK = {"type": "tab-area", "currentIndex": 0, "widgets": [_INDEX, _START]}
LAYOUT = {
    "data": {
        "layout-restorer:data": {
            "main": {"dock": _DOCK, "current": _INDEX},
            "left": {"collapsed": True, "visible": True, "widgets": ["filebrowser"]},
            "right": {"collapsed": True, "visible": True, "widgets": []},
        },
        _INDEX: {"data": {"path": INDEX, "factory": "Markdown Preview"}},
        _START: {"data": {"path": START, "factory": "Notebook"}},
    },
    "metadata": {"id": NAME},
}


def settings(prefix: Path) -> None:
    """The settings of the JupyterLab that is installed there."""
    with contextlib.suppress(PermissionError):  # another user's: whatever they are
        _write(prefix / "share" / "jupyter" / "lab" / "settings" / "overrides.json", SETTINGS)


def layout(folder: Path) -> None:
    """The workspace, unless there is one already: it is then as its user left it."""
    signed = hashlib.sha256(NAME.encode()).hexdigest()[:4]  # as jupyterlab_server names its files
    path = folder / f"{NAME}-{signed}.jupyterlab-workspace"
    if not path.exists():
        _write(path, LAYOUT)


def _write(path: Path, content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(content, indent=1), encoding="utf-8")
    fresh.replace(path)


if __name__ == "__main__":
    settings(Path(sys.prefix))
    home = Path(os.environ.get("JUPYTER_CONFIG_DIR", Path.home() / ".jupyter"))
    layout(Path(os.environ.get("JUPYTERLAB_WORKSPACES_DIR", home / "lab" / "workspaces")))
