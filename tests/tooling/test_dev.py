"""The commands of dev.py: they hand on exit codes and signals, keep what is yours, and listen on loopback only."""

from __future__ import annotations

import ast
import os
import re
import signal
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

import dev
import environment
from environment import Environment
from tiny import listens, make_project, wait_for

ROOT = Path(__file__).resolve().parents[2]


def run_as(code: str, **variables: str) -> int:
    """The exit code of a process that turns into this Python command."""
    env = {name: value for name, value in os.environ.items() if name != "DSPKIT_HOME"} | variables
    start = "import dev, sys; here = dev.Environment(dev.ROOT); here.python = dev.Path(sys.executable); "
    start += f"dev.become(here, '-c', {code!r})"
    return subprocess.run([sys.executable, "-c", start], cwd=ROOT, env=env, check=False).returncode


def test_exit_codes_and_signals_pass_through() -> None:
    assert run_as("raise SystemExit(5)") == 5
    assert run_as("import os; os.kill(os.getpid(), 15)") == -15
    assert run_as("import os, sys; sys.exit(os.environ['DSPKIT_HOME'] != os.getcwd())") == 0
    assert run_as("import os, sys; sys.exit(os.environ['DSPKIT_HOME'] != '/mine')", DSPKIT_HOME="/mine") == 0


def test_clean_keeps_what_is_yours(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny")
    mine = ["runs/run.parquet", "reports/page.html", "runs/__pycache__/x", "notebooks/mine.ipynb", ".git/config"]
    made = [".venv/bin/python", ".cache/pip/x", "build/bench.json", "tiny/__pycache__/x.pyc", "tiny.egg-info/PKG-INFO"]
    for name in mine + made:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("x")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    (root / "__pycache__").symlink_to(outside)
    dev.clean(Environment(root))
    assert all((root / name).exists() for name in mine)
    assert not any((root / name).exists() for name in made)
    assert (outside / "kept").exists(), "a link was followed"
    assert not (root / "__pycache__").is_symlink()
    dev.clean(Environment(root))  # a second time there is nothing to do


def test_tests_run_in_two_processes_unless_the_arguments_say_otherwise() -> None:
    assert dev.side_by_side(["-k", "placement"])[:2] == ["-n", "2"]
    for args in (["-n0"], ["-n", "4"], ["--dist=no"], ["-k", "x", "--pdb"]):
        assert dev.side_by_side(args) == [], args


def test_lint_runs_everything_and_fails_with_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def run(args: list[str], *rest: object) -> tuple[int, str]:
        asked.append(next(arg for arg in args[1:] if arg != "-m"))
        return {"mypy": 2}.get(asked[-1], 0), ""

    monkeypatch.setattr(dev, "run", run)
    with pytest.raises(SystemExit) as end:
        dev.lint(Environment(ROOT), [])
    assert (asked, end.value.code) == (["ruff", "ruff", "mypy", ".ci/prose.py"], 2)


def test_make_and_dev_offer_the_same_commands() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = set(re.search(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[1].split())
    documented = set(re.findall(r" {3}(\w+) {2,}(?=[a-z])", dev.__doc__))
    assert targets - {"help"} == documented
    env = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "PYTHON")}
    for target in sorted(documented):
        ran = subprocess.run(["make", "-n", target], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
        assert ran.stdout.split()[:3] == ["python3", "dev.py", target]


def test_an_unknown_command_is_refused() -> None:
    ran = subprocess.run([sys.executable, "dev.py", "tset"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "'tset' came" in ran.stderr
    assert subprocess.run([sys.executable, "dev.py"], cwd=ROOT, capture_output=True, check=False).returncode == 0


def test_an_old_python_is_told_what_is_needed() -> None:
    source = (ROOT / "dev.py").read_text()
    ast.parse(source, feature_version=(3, 6))  # the oldest that can still be reached
    code = "import sys; sys.version_info, sys.version = (3, 9, 1), '3.9.1 (default)'; exec(open('dev.py').read())"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert "needs Python 3.11+, this is 3.9.1" in ran.stderr


def test_the_lab_refuses_to_listen_elsewhere() -> None:
    for option in ("--ip=0.0.0.0", "--ServerApp.ip=0.0.0.0", "--ip"):
        with pytest.raises(SystemExit, match="only listen on this machine"):
            dev.lab(Environment(ROOT), [option])


@pytest.mark.skipif(not (Path(sys.prefix) / "share" / "jupyter" / "lab").exists(), reason="needs the extra lab")
def test_the_lab_serves_the_first_notebook_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Started(Exception):
        pass

    def keep(here: Environment, *args: object) -> None:
        raise Started([str(arg) for arg in args])

    monkeypatch.setattr(dev, "become", keep)
    here = Environment(ROOT)
    here.venv = tmp_path / "venv"  # where the settings go
    with pytest.raises(Started) as started:
        dev.lab(here, ["--port=0"])
    env = {**here.variables(), "JUPYTER_RUNTIME_DIR": str(tmp_path / "runtime")}
    log = tmp_path / "log"
    with log.open("w") as out:
        args = [sys.executable, *started.value.args[0], "--no-browser"]
        server = subprocess.Popen(args, env=env, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_for(lambda: "token=" in log.read_text() or server.poll() is not None)
        url = re.search(r"http://127\.0\.0\.1:\d+/lab/workspaces/dspkit\?token=\w+", log.read_text())
        assert url, log.read_text()
        base, token = url[0].split("/lab/")[0], url[0].split("token=")[1]
        wait_for(lambda: listens(base))  # the address is printed a moment before
        with urllib.request.urlopen(f"{base}/api/contents/dev.py?content=0&token={token}", timeout=30) as answer:
            assert answer.status == 200
        ask = urllib.request.Request(f"{base}/api/kernels?token={token}", data=b"{}", method="POST")
        with urllib.request.urlopen(ask, timeout=30) as answer:
            assert answer.status == 201
        with pytest.raises(urllib.error.HTTPError, match="403"):
            urllib.request.urlopen(f"{base}/api/kernels", timeout=30)
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(30)
    wait_for(lambda: not any(str(tmp_path) in command for command in kernels()), 20)


def kernels() -> list[str]:
    ran = subprocess.run(["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True)
    return [line for line in ran.stdout.splitlines() if "ipykernel_launcher" in line]


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Environment:
    """A checkout that belongs to another user. (To root every folder is writable.)"""
    monkeypatch.setattr(Environment, "writable", lambda self: False)
    for name in ("PIP_CACHE_DIR", "DSPKIT_HOME"):  # what a user has set goes first, and `make test` has set both
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(environment.tempfile, "gettempdir", lambda: str(tmp_path / "temporary"))
    return Environment(make_project(tmp_path / "theirs"))


def test_in_a_foreign_checkout_nothing_is_written(foreign: Environment, tmp_path: Path) -> None:
    before = sorted(foreign.root.rglob("*"))
    found = foreign.variables()
    own = tmp_path / "temporary" / f"dspkit-{os.getuid()}"
    for name in ("PIP_CACHE_DIR", "JUPYTER_RUNTIME_DIR", "NUMBA_CACHE_DIR", "DSPKIT_HOME"):
        assert Path(found[name]).is_relative_to(own), name
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert sorted(foreign.root.rglob("*")) == before


def test_a_foreign_checkout_without_a_whole_environment_is_one_sentence(foreign: Environment) -> None:
    with pytest.raises(SystemExit, match=r"cannot be used \(there is none\), nor repaired, .* let its owner run"):
        foreign.ensure()
    assert not foreign.venv.exists()


def test_a_folder_that_another_user_put_in_the_way_is_not_used(foreign: Environment, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "temporary" / f"dspkit-{os.getuid()}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SystemExit, match="not a folder of yours"):
        foreign.variables()


@pytest.mark.skipif(sys.platform != "linux", reason="C.UTF-8 is there on Linux")
def test_python_starts_in_any_path_under_the_c_locale(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LC_ALL", "C")
    assert Environment(make_project(tmp_path / "é")).variables()["LC_ALL"] == "C.UTF-8"
    monkeypatch.setenv("LC_ALL", "de_DE.ISO-8859-1")
    assert Environment(make_project(tmp_path / "e")).variables()["LC_ALL"] == "de_DE.ISO-8859-1"
