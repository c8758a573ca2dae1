"""The moving picture of the README: `make picture` plays notebook 00 in a real JupyterLab and films the view.

It starts the JupyterLab of this checkout on this machine, runs all cells in headless Chromium, presses Start, and
writes docs/images/live.png, an animated PNG of the view's frames (Chromium's own PNGs, joined; no other library).
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "docs" / "images" / "live.png"
FRAMES, EVERY_MS, SHOWN_MS, SLOWER = 24, 450, 350, 5
HEAD = b"\x89PNG\r\n\x1a\n"


def chunks(png: bytes) -> list[tuple[bytes, bytes]]:
    """Return the chunks of a PNG as pairs of kind and data."""
    at, found = len(HEAD), []
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        found.append((png[at + 4 : at + 8], png[at + 8 : at + 8 + size]))
        at += size + 12
    return found


def joined(frames: Sequence[bytes], shown_ms: int) -> bytes:
    """Return an animated PNG of frames of the same size and kind; the last one is shown six times as long.

    >>> joined([], 100)
    Traceback (most recent call last):
    ValueError: no frames
    """
    if not frames:
        raise ValueError("no frames")
    head = dict(chunks(frames[0]))[b"IHDR"]
    size, number = head[:8], 0
    out = [_chunk(b"IHDR", head), _chunk(b"acTL", struct.pack(">II", len(frames), 0))]
    for i, frame in enumerate(frames):
        if dict(chunks(frame))[b"IHDR"] != head:
            raise ValueError(f"frame {i} has another size")
        shown = shown_ms * (6 if i == len(frames) - 1 else 1)
        control = struct.pack(">I", number) + size + struct.pack(">IIHHBB", 0, 0, shown, 1000, 0, 0)
        out.append(_chunk(b"fcTL", control))
        number += 1
        for data in (data for kind, data in chunks(frame) if kind == b"IDAT"):
            if i == 0:
                out.append(_chunk(b"IDAT", data))
            else:
                out.append(_chunk(b"fdAT", struct.pack(">I", number) + data))
                number += 1
    return HEAD + b"".join(out) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def film(address: str) -> list[bytes]:
    from playwright.sync_api import sync_playwright

    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    with sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=browser, args=["--no-sandbox", "--disable-gpu"])
        page = chromium.new_page(viewport={"width": 1240, "height": 1500})
        page.set_default_timeout(300_000)  # of a busy machine
        page.goto(address)
        page.wait_for_selector(".jp-NotebookPanel .jp-Cell", timeout=300_000)
        idle = "() => document.querySelector('#jp-main-statusbar')?.textContent.includes('| Idle')"
        page.wait_for_function(idle, timeout=300_000)
        page.get_by_role("menuitem", name="Run", exact=True).click()
        page.locator("#jp-mainmenu-run").get_by_text("Run All Cells", exact=True).click()
        start = page.locator("button:visible", has_text="Start").first
        start.wait_for(timeout=300_000)
        view = page.locator(".jp-OutputArea-output .dspkit, .dspkit").first
        view.scroll_into_view_if_needed()
        slider = page.locator(".widget-slider", has_text="speed").locator(".noUi-handle")
        speed = page.get_by_label("speed", exact=False).or_(slider).first
        speed.focus()
        for _ in range(SLOWER):  # so that the run outlasts the film
            page.keyboard.press("ArrowLeft")
        box = view.bounding_box()
        if box is None:
            raise SystemExit("picture: the view is not on the page")
        clip = {
            "x": box["x"],
            "y": max(0.0, box["y"]),
            "width": min(box["width"], 1200),
            "height": min(box["height"], 820),
        }
        start.click()
        frames = []
        for _ in range(FRAMES):
            frames.append(page.screenshot(clip=clip, type="png"))
            page.wait_for_timeout(EVERY_MS)
        chromium.close()
    return frames


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        shutil.copytree(ROOT / "notebooks", Path(home, "notebooks"))
        env = os.environ | {"DSPKIT_HOME": home, "PYTHONPATH": str(ROOT)}
        env |= {f"JUPYTER{part}_DIR": str(Path(home, part)) for part in ("LAB_SETTINGS", "LAB_WORKSPACES", "_CONFIG")}
        command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ServerApp.ip=127.0.0.1"]
        command += [f"--ServerApp.root_dir={home}", "--LabApp.news_url="]
        server = subprocess.Popen(
            command[:-1], env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            assert server.stdout is not None
            said = iter(server.stdout)
            base = next(m for line in said if (m := re.search(r"(http://127\.0\.0\.1:\d+)/lab\S*(token=\w+)", line)))
            frames = film(f"{base[1]}/lab/tree/notebooks/00_start.ipynb?{base[2]}")
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait(60)
    OUT.write_bytes(joined(frames, SHOWN_MS))
    print(f"{OUT.relative_to(ROOT)}: {len(frames)} frames, {OUT.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
