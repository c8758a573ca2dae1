"""The set-up repairs what is broken and only that; half-made, killed, moved or twice at once, it ends up whole."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from environment import Environment
from tiny import locked, make_project, make_wheel, pack_pip, wait_for, works

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.slow  # a minute of environments; `make test` itself has just set one up


@pytest.fixture(scope="module", autouse=True)
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The only source of packages: pip sees no index and no configuration of the user's."""
    folder = tmp_path_factory.mktemp("wheels")
    for name, version in (("small", "1.0"), ("small", "2.0"), ("other", "1.0")):
        make_wheel(folder, name, version)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PIP_FIND_LINKS", folder.as_uri())  # pip splits paths at blanks
        patch.setenv("PIP_NO_INDEX", "1")
        patch.setenv("PIP_CONFIG_FILE", os.devnull)
        patch.delenv("TORCH_INDEX_URL", raising=False)
        yield folder


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(make_project(tmp_path_factory.mktemp("shared") / "tiny project"))


@pytest.fixture
def healthy(shared: Environment) -> Environment:
    """A complete environment, with a mark that is gone once .venv has been made again."""
    shared.ensure()
    (shared.venv / "mark").touch()
    return shared


def at_rest(environment: Environment, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Does another set-up find nothing to do?"""
    steps: list[str] = []
    monkeypatch.setattr(Environment, "step", lambda self, text, *rest, **options: steps.append(text) or 0)
    environment.ensure()
    return not steps


def info_of(environment: Environment, name: str) -> Path:
    return next(environment.site.glob(f"{name}-*.dist-info"))


def wrong_version(e: Environment) -> None:
    subprocess.run([e.python, "-m", "pip", "install", "-qq", "small==2.0"], check=True)


def package_gone(e: Environment) -> None:
    shutil.rmtree(e.site / "small")
    shutil.rmtree(info_of(e, "small"))


def cut_short(e: Environment) -> None:
    """As a killed pip leaves it: some files, no list of them, and the former package under another name."""
    (e.site / "small" / "more.py").unlink()
    (info_of(e, "small") / "RECORD").unlink()
    (e.site / "~mall").mkdir()


DAMAGES: dict[str, Callable[[Environment], object]] = {
    "file deleted": lambda e: (e.site / "small" / "more.py").unlink(),
    "file emptied": lambda e: (e.site / "small" / "more.py").write_text(""),
    "wrong version": wrong_version,
    "package gone": package_gone,
    "cut short": cut_short,
    "there twice": lambda e: shutil.copytree(info_of(e, "small"), e.site / "small-0.9.dist-info"),
    "checkout unlinked": lambda e: (e.site / "tiny.pth").unlink(),
    "no stamp": lambda e: e.stamp.unlink(),
    "stamp cut short": lambda e: e.stamp.write_text(e.stamp.read_text()[:20]),
    "stamp is a list": lambda e: e.stamp.write_text("[1, 2]"),
    "stamp is no text": lambda e: e.stamp.write_bytes(b"\xff\xfe\x00"),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_damage_is_mended_in_place(damage: str, healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    untouched = healthy.site / "other" / "more.py"
    os.utime(untouched, (1, 1))
    DAMAGES[damage](healthy)
    assert not works(healthy) or "stamp" in damage or damage == "there twice"
    Environment(healthy.root).ensure()
    assert works(healthy)
    assert untouched.stat().st_mtime == 1, "what was whole has been installed again"
    assert (healthy.venv / "mark").exists(), "the whole environment has been made anew"
    assert at_rest(healthy, monkeypatch)


def dangling(e: Environment) -> None:
    e.python.unlink()
    e.python.symlink_to("/nowhere/python3")


def other_python(e: Environment) -> None:
    e.python.unlink()
    e.python.write_text("#!/bin/sh\necho 3.9\n")
    e.python.chmod(0o755)


RUINS: dict[str, Callable[[Environment], object]] = {
    "interpreter dangling": dangling,
    "another Python": other_python,
    "no pyvenv.cfg": lambda e: (e.venv / "pyvenv.cfg").unlink(),
    "pip broken": lambda e: (e.site / "pip" / "__main__.py").unlink(),
    "only a file": lambda e: (shutil.rmtree(e.venv), e.venv.touch()),
}


@pytest.mark.parametrize("ruin", RUINS)
def test_ruins_are_made_anew(ruin: str, healthy: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    RUINS[ruin](healthy)
    Environment(healthy.root).ensure()
    assert works(healthy)
    assert not (healthy.venv / "mark").exists()
    assert at_rest(healthy, monkeypatch)


def test_a_moved_checkout_is_set_up_again(healthy: Environment, tmp_path: Path) -> None:
    moved = tmp_path / "elsewhere"
    shutil.copytree(healthy.root, moved, symlinks=True)
    Environment(moved).ensure()
    assert works(Environment(moved))
    assert str(healthy.root) not in (moved / ".venv" / "bin" / "pip").read_text()


def test_a_new_lock_is_followed(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny", "small==2.0\nother==1.0\n")
    Environment(root).ensure()
    assert not works(Environment(root))
    (root / "constraints.txt").write_text(locked("small==1.0\nother==1.0\n"))
    Environment(root).ensure()
    assert works(Environment(root))


def test_what_you_add_is_left_alone(healthy: Environment, wheels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_wheel(wheels, "yours", "1.0")
    subprocess.run([healthy.python, "-m", "pip", "install", "-qq", "yours"], check=True)
    (healthy.site / "yours" / "more.py").unlink()
    assert at_rest(healthy, monkeypatch)


def ensure_in_process(root: Path) -> subprocess.Popen[str]:
    code = "import dev; dev.die_on_sigterm(); dev.Environment(dev.Path(dev.sys.argv[1])).ensure()"
    return subprocess.Popen(
        [sys.executable, "-c", code, root], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def builders(root: Path) -> list[str]:
    """Processes that work in this checkout (pip and the build it started), from /proc."""
    commands = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            command = path.read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if f"{root}/.venv/" in command:
            commands.append(command)
    return commands


needs_proc = pytest.mark.skipif(not Path("/proc/self").exists(), reason="looks at processes through Linux's /proc")


def interrupt(root: Path, number: int) -> None:
    """Start a set-up, and send it this signal while pip is at work."""
    (root / "slow").touch()
    process = ensure_in_process(root)
    wait_for(lambda: any("pip install" in command for command in builders(root)))
    process.send_signal(number)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == (143 if number == signal.SIGTERM else -number), output
    assert not Environment(root).stamp.exists()


@needs_proc
def test_an_ended_set_up_takes_pip_with_it_and_goes_on_later(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny")
    interrupt(root, signal.SIGTERM)
    assert not any("pip install" in command for command in builders(root)), "pip outlived the set-up"
    (root / "slow").unlink()
    Environment(root).ensure()
    assert works(Environment(root))


@needs_proc
def test_a_killed_set_up_leaves_pip_which_the_next_one_waits_for(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny")
    interrupt(root, signal.SIGKILL)
    assert any("pip install" in command for command in builders(root)), "nothing to wait for"
    process = ensure_in_process(root)
    assert "waiting for it" in process.stdout.readline()
    (root / "slow").unlink()
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    assert works(Environment(root))


def test_two_at_once_do_the_work_once(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny")
    (root / "slow").touch()
    both = [ensure_in_process(root)]
    wait_for((root / ".venv").exists)
    both.append(ensure_in_process(root))
    assert "waiting for it" in both[1].stdout.readline()
    (root / "slow").unlink()
    first, second = (process.communicate(timeout=60)[0] for process in both)
    assert [process.returncode for process in both] == [0, 0], first + second
    assert first.count("making .venv") == 1
    assert "installing" not in second
    assert works(Environment(root))


def test_a_failing_step_shows_why_and_keeps_its_exit_code(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    root = make_project(tmp_path / "tiny", "small==9\nother==1.0\n")
    with pytest.raises(SystemExit) as end:
        Environment(root).ensure()
    assert end.value.code == 1
    output = capfd.readouterr()
    assert "No matching distribution found for small==9" in output.err
    assert "the same command goes on from here" in output.err
    assert not Environment(root).stamp.exists()


@pytest.mark.parametrize("package", ["small", "torch"])
def test_a_file_that_is_not_the_locked_one_is_not_installed(
    package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, version in (("small", "1.0"), ("other", "1.0"), ("torch", "1.0+cpu")):
        make_wheel(folder, name, version)
    monkeypatch.setenv("PIP_FIND_LINKS", folder.as_uri())
    root = make_project(tmp_path / "tiny", "small==1.0\nother==1.0\ntorch==1.0\n")
    (root / ".ci").mkdir()
    wheel = next(folder.glob("torch-*.whl"))
    words = f"{wheel.name} sha256:{hashlib.sha256(wheel.read_bytes()).hexdigest()}\n"
    (root / ".ci" / "torch-cpu.txt").write_text(words)
    with zipfile.ZipFile(next(folder.glob(f"{package}-*.whl")), "a") as archive:
        archive.comment = b"changed on the way"
    with pytest.raises(SystemExit):
        Environment(root).ensure()
    assert not (Environment(root).site / package).exists()
    output = capfd.readouterr()
    if package == "small":
        assert "THESE PACKAGES DO NOT MATCH THE HASHES" in output.err


def test_a_lock_without_hashes_installs_nothing(tmp_path: Path) -> None:
    root = make_project(tmp_path / "tiny")
    (root / "constraints.txt").write_text("small==1.0\nother==1.0\n")
    with pytest.raises(SystemExit):
        Environment(root).ensure()
    assert not (Environment(root).site / "small").exists()


@pytest.mark.parametrize(
    ("found", "taken"),
    [(["1.0", "1.0+cpu"], "1.0+cpu"), (["1.0"], "1.0")],
    ids=["the CPU build is preferred", "without one, the plain one with a warning"],
)
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a torch with and one without CUDA to choose from")
def test_which_torch(
    found: list[str], taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "wheels"
    folder.mkdir()
    for version in found:
        make_wheel(folder, "torch", version)
    monkeypatch.setenv("PIP_FIND_LINKS", f"{folder.as_uri()} {os.environ['PIP_FIND_LINKS']}")  # and no index at all
    root = make_project(tmp_path / "tiny", "small==1.0\nother==1.0\ntorch==1.0\n")
    (root / ".ci").mkdir()
    wheel = folder / "torch-1.0+cpu-py3-none-any.whl"
    words = hashlib.sha256(wheel.read_bytes() if wheel.exists() else b"a file that no place has").hexdigest()
    (root / ".ci" / "torch-cpu.txt").write_text(f"{wheel.name} sha256:{words}\n")
    Environment(root).ensure()
    assert info_of(Environment(root), "torch").name == f"torch-{taken}.dist-info"
    output = capfd.readouterr().out
    assert ("WARNING" in output) == (taken == "1.0")
    assert ("pytorch.org" in output) == (taken == "1.0"), "the CPU index is asked only where pip knows no CPU build"


@pytest.mark.parametrize("changed", ["", "torch", "cuda"])
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a torch with and one without CUDA to choose from")
def test_nothing_of_torch_is_installed_without_its_hash(
    changed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not a CPU build of which the hash is not known, nor the plain one in its place, nor what that needs."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name, version in (("torch", "1.0"), ("torch", "1.0+cpu"), ("cuda", "3.0")):
        make_wheel(folder, name, version)
    monkeypatch.setenv("PIP_FIND_LINKS", f"{folder.as_uri()} {os.environ['PIP_FIND_LINKS']}")
    root = make_project(tmp_path / "tiny", "small==1.0\nother==1.0\ntorch==1.0\n")
    (root / ".ci").mkdir()
    (root / ".ci" / "torch-cuda.txt").write_text(locked("cuda==3.0"))
    if changed:
        wheel = folder / {"torch": "torch-1.0-py3-none-any.whl", "cuda": "cuda-3.0-py3-none-any.whl"}[changed]
        with zipfile.ZipFile(wheel, "a") as archive:
            archive.comment = b"changed on the way"
        with pytest.raises(SystemExit):
            Environment(root).ensure()
        assert not (Environment(root).site / changed).exists()
    else:
        Environment(root).ensure()
        assert info_of(Environment(root), "torch").name == "torch-1.0.dist-info"
        assert (Environment(root).site / "cuda").is_dir()


def test_without_ensurepip_the_pip_of_this_python_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian keeps ensurepip in a package of its own, python3-venv."""
    absent, find = {"ensurepip"}, importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in absent else find(name))
    pack_pip(tmp_path)
    monkeypatch.setenv("PIP_FIND_LINKS", f"{tmp_path.as_uri()} {os.environ['PIP_FIND_LINKS']}")
    here = Environment(make_project(tmp_path / "tiny"))
    here.ensure()
    assert works(here)
    absent.add("pip")
    shutil.rmtree(here.venv)
    with pytest.raises(SystemExit, match="apt-get install python3-venv"):
        here.ensure()


def test_torch_comes_from_where_the_user_says(shared: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(Environment, "step", lambda self, text, args, **rest: commands.append(args) or 0)
    monkeypatch.setenv("TORCH_INDEX_URL", "https://example.org/torch")
    shared.torch("1.0", "torch==1.0")
    assert [command[-3:] for command in commands] == [["--index-url", "https://example.org/torch", "torch==1.0"]]


def test_tools_write_below_the_checkout_only(shared: Environment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_CACHE_DIR", raising=False)
    variables = shared.variables()
    for name in ("PIP_CACHE_DIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR", "XDG_CACHE_HOME"):
        assert Path(variables[name]).is_relative_to(shared.root / ".cache"), name
    assert variables["PATH"].startswith(f"{shared.venv}/bin:")
    assert variables["HOME"] == os.environ["HOME"], "pip's own configuration is found through HOME"
    monkeypatch.setenv("PIP_CACHE_DIR", "/mine")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    variables = shared.variables()
    assert (variables["PIP_CACHE_DIR"], variables["OMP_NUM_THREADS"]) == ("/mine", "3")
