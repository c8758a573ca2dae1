"""A real JupyterLab, kernel and browser, for the claims of `benchmarks/ui.py` on views."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}
IDLE = "() => document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"


@contextmanager
def lab() -> Iterator[tuple[str, Path]]:
    """A server's address with its token, and the folder that it serves."""
    with tempfile.TemporaryDirectory(prefix="dspkit-bench-") as home:
        folder = Path(home, "notebooks")
        folder.mkdir()
        places = ("LAB_SETTINGS_DIR", "LAB_WORKSPACES_DIR", "_CONFIG_DIR", "_RUNTIME_DIR", "_DATA_DIR")
        env = {**os.environ, "DSPKIT_HOME": home, "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
        env |= {f"JUPYTER{place}": str(Path(home, place)) for place in places}
        options = ["--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1", f"--ServerApp.root_dir={folder}"]
        server = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], env=env, text=True, start_new_session=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        try:
            assert server.stdout is not None
            address = re.compile(r"http://127\.0\.0\.1:\d+/lab\S*token=\w+")
            found = next((m[0] for line in server.stdout if (m := address.search(line))), "")
            threading.Thread(target=server.stdout.read, daemon=True).start()
            yield found, folder
        finally:
            kernels = [pid for pid, (what, _) in memory(Path(home)).items() if "ipykernel" in what]
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
            for pid in kernels:  # each in a group of its own; the server does not end one that is still starting
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)


@contextmanager
def page() -> Iterator[Any]:
    """A page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        raise RuntimeError("no Chromium on PATH; to have it: apt-get install -y chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, headless=True, args=["--no-sandbox", "--disable-gpu", "--disable-sync"]
        )
        yield browser.new_page(viewport={"width": 1500, "height": 1200})
        browser.close()


def open_and_run(page: Any, address: str, name: str) -> None:
    """Open a notebook by its address, once the server answers, and run all of it."""
    url = re.sub(r"/lab\S*\?", f"/lab/tree/{name}?", address)
    for attempt in range(50):
        try:
            page.goto(f"{url}&reset")
            break
        except Exception:
            if attempt == 49:
                raise
            time.sleep(0.1)
    page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=120_000)
    page.wait_for_function(IDLE, timeout=120_000)
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.locator("#jp-mainmenu-run").get_by_text("Run All Cells", exact=True).click()


def memory(home: Path) -> dict[int, tuple[str, float]]:
    """Return the processes of this home's server and kernels, with the megabytes of each."""
    found = {}
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and f"DSPKIT_HOME={home}" in (entry / "environ").read_text(errors="replace"):
                words = (entry / "cmdline").read_text().split("\0")
                held = re.search(r"VmRSS:\s+(\d+) kB", (entry / "status").read_text())
                if held is not None:
                    found[int(entry.name)] = (" ".join(words[1:3]), int(held[1]) / 1000)
        except OSError:  # it has ended meanwhile
            continue
    return found


# From a key press on a slider to the first frame with other data: the time that a person waits.
MOVES = """async ([selector, chart, moves, keys, pause]) => {
    const handle = document.querySelector(selector), times = [];
    const data = () => {
        const p = document.querySelector(chart);
        return p && (p.data ? JSON.stringify(p.data) : p.textContent);
    };
    for (let i = 0; i < moves; i++) {
        const before = data(), key = keys[i % keys.length], started = performance.now();
        handle.focus();
        const way = {key, code: key, keyCode: key === 'ArrowRight' ? 39 : 37, bubbles: true, cancelable: true};
        handle.dispatchEvent(new KeyboardEvent('keydown', way));
        handle.dispatchEvent(new KeyboardEvent('keyup', way));
        const late = started + 20000;
        while (true) {
            await new Promise(done => requestAnimationFrame(done));
            if (data() !== before) break;
            if (performance.now() > late) throw new Error('move ' + i + ': the chart did not change');
        }
        times.push(performance.now() - started);
        if (pause) await new Promise(done => setTimeout(done, pause));
    }
    return times;
}"""
