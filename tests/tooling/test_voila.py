"""`make app`: the notebooks as pages without code, in Voilà, on this machine only."""

from __future__ import annotations

import importlib.util
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest

import dev
from environment import Environment
from tiny import listens, wait_for

ROOT = Path(__file__).resolve().parents[2]
NO_VOILA = "no Voilà in this environment; to have it: make setup, or pip install 'dspkit[app]'"


def command(monkeypatch: pytest.MonkeyPatch, *args: str) -> list[str]:
    """What `dev.py app` would turn into."""
    said: list[str] = []
    monkeypatch.setattr(dev, "become", lambda here, *words: said.extend(map(str, words)))
    dev.app(Environment(ROOT), list(args))
    return said


def test_it_listens_on_this_machine_only_and_wants_a_token(monkeypatch: pytest.MonkeyPatch) -> None:
    words = command(monkeypatch, "--port=9000")
    assert words[:3] == ["-m", "voila", str(ROOT / "notebooks")]
    assert {"--Voila.ip=127.0.0.1", "--Voila.auto_token=True", "--port=9000"} <= set(words)
    for option in ("--ip=0.0.0.0", "--Voila.ip=0.0.0.0"):
        with pytest.raises(SystemExit, match="only listen on this machine"):
            dev.app(Environment(ROOT), [option])


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("voila") is None, reason=NO_VOILA)
def test_the_pages_come_up_without_code_and_without_the_one_with_spark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = command(monkeypatch, "--no-browser", f"--port={port}")
    env = {**os.environ, "JUPYTER_RUNTIME_DIR": str(tmp_path), "DSPKIT_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    log = tmp_path / "log"
    with log.open("w") as out:
        server = subprocess.Popen([sys.executable, *words], env=env, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_for(lambda: "http://" in log.read_text() or server.poll() is not None)
        found = re.search(r"http://127\.0\.0\.1:\d+/\?token=(\w+)", log.read_text())
        assert found, log.read_text()
        base, token = found[0].split("/?")[0], found[1]
        wait_for(lambda: listens(base))

        def page(path: str) -> str:
            with urllib.request.urlopen(f"{base}{path}?token={token}", timeout=120) as answer:
                return str(answer.read().decode())

        with urllib.request.urlopen(f"{base}/voila/render/00_start.ipynb", timeout=60) as answer:  # without a token
            assert "/login" in answer.url
        assert "02_live_spark" not in page("/voila/tree/")
        shown = page("/voila/render/00_start.ipynb")
        assert "Start here" in shown
        assert "Export report" in shown
        assert "from dspkit import" not in re.sub(r"<script.*?</script>", "", shown, flags=re.S).split("next run")[0]
        assert "Traceback" not in shown
    finally:
        server.send_signal(signal.SIGINT)
        server.send_signal(signal.SIGTERM)
        server.wait(30)
