"""A real JupyterLab for tests with a browser."""

import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import workspace
from tiny import listens, wait_for

ROOT = Path(__file__).parents[1]
IDLE = "() => document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"  # the kernel


def _command(folder):
    """The README's own `make lab` on this folder, if these tests run in its environment."""
    served = f"--ServerApp.root_dir={folder}"
    if Path(sys.prefix) == ROOT / ".venv":
        return [sys.executable, str(ROOT / "dev.py"), "lab", "--no-browser", served]
    options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", served]
    return [sys.executable, "-m", "jupyterlab", *options, f"--LabApp.default_url={workspace.URL}"]


@pytest.fixture(scope="module")
def lab_folder(tmp_path_factory):
    """A checkout with notebooks of its own: JupyterLab saves by itself, and other tests read those of this one."""
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if not path.name.startswith(".") and path.name != "notebooks":
            (folder / path.name).symlink_to(path)
    shutil.copytree(ROOT / "notebooks", folder / "notebooks", ignore=shutil.ignore_patterns(".*", "reports"))
    return folder


@pytest.fixture(scope="module")
def lab(tmp_path_factory, lab_folder):
    """The address that `make lab` prints."""
    home = tmp_path_factory.mktemp("lab")
    env = {**os.environ, "DSPKIT_HOME": str(home)}
    workspace.layout(home / "LAB_WORKSPACES")
    env |= {f"JUPYTER{part}_DIR": str(home / part) for part in ("LAB_SETTINGS", "LAB_WORKSPACES", "_CONFIG")}
    server = subprocess.Popen(
        _command(lab_folder),
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
    )
    said = []
    try:
        for line in server.stdout:
            said.append(line)
            if found := re.search(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+", line):
                threading.Thread(target=server.stdout.read, daemon=True).start()  # a full pipe would stop it
                wait_for(lambda: listens(found[0].split("/lab")[0]))  # it says so a moment before it does
                yield found[0]
                break
        else:
            pytest.fail("no address printed:\n" + "".join(said))
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait(120)  # it ends its kernels first
        server.stdout.close()


def save(page):
    """Press Ctrl+S, and wait for the server's answer: before that it has cut the file, and not written all of it."""
    with page.expect_response(lambda answer: answer.request.method == "PUT" and ".ipynb" in answer.url) as answer:
        page.keyboard.press("Control+s")
    assert answer.value.ok


def run_all(page, url):
    """The notebook in the lab, and start all its cells; return the condition under which its kernel is idle."""
    page.goto(url + "&reset")
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=240_000)
    page.wait_for_function(IDLE, timeout=240_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator("#jp-mainmenu-run").get_by_text("Run All Cells", exact=True).click()
    return IDLE
