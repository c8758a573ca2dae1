"""A tiny project and its wheels, so that the set-up can be tested in seconds and without a network."""

from __future__ import annotations

import hashlib
import os
import socket
import subprocess
import time
import zipfile
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from urllib.parse import unquote, urlsplit

from environment import Environment

PYPROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "tiny"
version = "0.1"
dependencies = ["small", "other"]
[project.optional-dependencies]
all = []
test = []
"""

# A build backend in twenty lines, so that `pip install -e` needs nothing from anywhere. `slow` makes it hang.
BACKEND = """
import pathlib, time, zipfile
META = "Metadata-Version: 2.1\\nName: tiny\\nVersion: 0.1\\nRequires-Dist: small\\nRequires-Dist: other\\n"
META += "Provides-Extra: all\\nProvides-Extra: test\\n"
def build_editable(folder, config=None, metadata=None):
    while pathlib.Path("slow").exists():
        time.sleep(0.05)
    name = "tiny-0.1-py3-none-any.whl"
    with zipfile.ZipFile(pathlib.Path(folder, name), "w") as wheel:
        wheel.writestr("tiny.pth", str(pathlib.Path.cwd()))
        wheel.writestr("tiny-0.1.dist-info/METADATA", META)
        wheel.writestr("tiny-0.1.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr("tiny-0.1.dist-info/RECORD", "")
    return name
build_wheel = build_editable
"""


def make_wheel(folder: Path, name: str, version: str) -> None:
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}/__init__.py": f"VERSION = {version!r}\n",
        f"{name}/more.py": "ANSWER = 42\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{path},,{len(text)}\n" for path, text in files.items()) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in {**files, f"{info}/RECORD": record}.items():
            wheel.writestr(path, text)


def pack_pip(folder: Path) -> None:
    """This Python's own pip as a wheel again: not every system keeps the one that ensurepip brings."""
    pip = metadata.distribution("pip")
    kept = [f for f in pip.files or [] if not str(f).startswith("..") and f.suffix != ".pyc" and f.locate().exists()]
    with zipfile.ZipFile(folder / f"pip-{pip.version}-py3-none-any.whl", "w") as wheel:
        for file in kept:
            if file.name not in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json"):
                wheel.write(file.locate(), str(file))
        wheel.writestr(f"pip-{pip.version}.dist-info/RECORD", "".join(f"{file},,\n" for file in kept))


def locked(constraints: str) -> str:
    """The lines of a lock with the hashes of the wheels that lie where pip looks, or one that no file has."""
    folders = [Path(urlsplit(unquote(word)).path) for word in os.environ.get("PIP_FIND_LINKS", "").split()]
    lines = []
    for line in constraints.splitlines():
        name, _, version = line.partition("==")
        found = [path for folder in folders for path in folder.glob(f"{name}-{version}-*.whl")]
        hashes = [hashlib.sha256(path.read_bytes()).hexdigest() for path in found] or ["0" * 64]
        lines.append(" \\\n".join([line, *(f"    --hash=sha256:{value}" for value in hashes)]))
    return "\n".join(lines) + "\n"


def make_project(root: Path, constraints: str = "small==1.0\nother==1.0\n") -> Path:
    root.mkdir(parents=True)
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND)
    (root / "constraints.txt").write_text(locked(constraints))
    return root


def works(environment: Environment) -> bool:
    """Does it hold the locked versions, whole, and a dspkit (here: tiny) that is the checkout's own?"""
    code = "import small.more, other, backend; print(small.VERSION, small.more.ANSWER, other.VERSION, backend.__file__)"
    ran = subprocess.run([environment.python, "-Ic", code], capture_output=True, text=True, check=False)
    return ran.stdout == f"1.0 42 1.0 {environment.root}/backend.py\n" and not any(environment.site.glob("~*"))


def listens(address: str) -> bool:
    """Whether something answers at this http://host:port."""
    host, port = address.removeprefix("http://").split(":")
    try:
        socket.create_connection((host, int(port)), timeout=30).close()
    except ConnectionRefusedError:
        return False
    return True


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
