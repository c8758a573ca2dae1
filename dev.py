#!/usr/bin/env python3
"""Set the laboratory up in this checkout, and run it.

    python3 dev.py COMMAND [arguments handed on]      (`make COMMAND` is the same)

    lab     open JupyterLab on the index of the notebooks, on this machine only
    app     the notebooks as pages of sliders and charts, without their code (Voilà); not those with Spark
    demo    word count on a local Spark under a policy, for two minutes; leaves a report (--help: what can be set)
    test    run the tests                   report  run a notebook, write one HTML file to reports/
    bench   time the claims we make         lint    check style, formatting, types and prose
    fuzz    feed the parsers of others' files mutated input, ten minutes each (ARGS="markdown --seconds 60")
    reproduce  make the papers' tables again, and docs/reproduction.md of them (--only stela; some 25 minutes)
    docs    run the examples of the how-to pages (--no-examples: not), and build the site strictly into build/site
            (--run: first the notebooks, for the outputs in its tutorials; some 15 minutes)
    picture  film the moving picture of the README
    release  build and check what is released, up to the upload
    jar     compile the Spark part's Java again (needs a JDK of 17 or newer)
    setup   make or repair .venv, no more   clean   remove what these commands made; keep runs/ and reports/
    lock    resolve constraints.txt again (--upgrade: to the newest versions)

It needs nothing but Python, and writes nowhere but below this folder. How and why: docs/environment.md.
"""

import os
import sys

if sys.version_info < (3, 11):  # what stands up to here must stay readable to the Pythons it turns away
    sys.exit("dspkit needs Python 3.11+, this is %s. Try: make PYTHON=python3.11" % sys.version.split()[0])
if os.name != "posix":
    sys.exit("dspkit's set-up runs on Linux and macOS, this is " + sys.platform + ". On Windows use WSL.")

import signal
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent
sys.path.insert(0, str(ROOT / ".ci"))
import kernels
import pages
import workspace
from environment import Environment, remove, run, say

CACHES = "__pycache__ .ipynb_checkpoints .pytest_cache .mypy_cache .ruff_cache .hypothesis spark-warehouse metastore_db"


def become(here: Environment, *args: object) -> None:
    """Turn into this command: its exit code and the signals it gets are then its own."""
    sys.stdout.flush()
    os.chdir(here.root)
    os.execve(here.python, [str(here.python), *map(str, args)], here.variables())


def lab(here: Environment, args: list[str]) -> None:
    loopback_only(args)
    workspace.settings(here.venv)
    workspace.layout(Path(here.variables()["JUPYTERLAB_WORKSPACES_DIR"]))
    options = browser() + ["--allow-root", "--ServerApp.answer_yes=True"]
    if not any(arg.startswith("--ServerApp.root_dir=") for arg in args):
        options += [f"--ServerApp.root_dir={here.root}"]
    options += [f"--LabApp.default_url={workspace.URL}", "--LabApp.extension_manager=readonly"]
    options += ["--ContentsManager.pre_save_hook=dspkit.report.notebook.keep_language", *args]
    say(f"starting JupyterLab on {workspace.INDEX}; Ctrl-C ends it")
    become(here, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", *options)


def app(here: Environment, args: list[str]) -> None:
    """The notebooks that need no Spark as pages without code; each visit has a kernel of its own."""
    loopback_only(args)
    shared = here.places()[0] / "pages"
    pages.write(shared, here.venv / "share" / "jupyter" / "voila" / "templates")
    os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, (str(shared), os.environ.get("JUPYTER_PATH"))))
    reports = here.root / "notebooks" / "reports"  # Voilà serves only what is below its folder
    kept = Path(here.variables()["DSPKIT_HOME"], "reports").absolute()
    if here.writable():  # otherwise the pages work, and only their links to reports lead nowhere
        kept.mkdir(parents=True, exist_ok=True)
        if reports.is_symlink() and reports.readlink() != kept:
            reports.unlink()
        if not reports.exists():
            reports.symlink_to(kept)
    served = r"['images/.*\\.png', 'reports/[^/]*\\.html']"
    options = [*browser(), "--Voila.ip=127.0.0.1", "--Voila.auto_token=True", f"--template={pages.NAME}"]
    options += ["--show_tracebacks=True", "--MappingKernelManager.cull_idle_timeout=600"]
    options += [f"--VoilaConfiguration.file_allowlist={served}"]
    options += [f"--ContentsManager.hide_globs={name}" for name in ("__pycache__", ".*", "*spark*")]
    say("starting Voilà on the notebooks; Ctrl-C ends it")
    become(here, "-m", "voila", here.root / "notebooks", *options, *args)


def compile_kernels(here: Environment) -> None:
    """Compile the simulator if its sources have changed: else the first Start in a notebook would wait for that."""
    stamp = here.places()[0] / "kernels"
    if stamp.exists() and stamp.read_text() == kernels.sources():
        return
    say("compiling the simulator, once for this version: some 20 s")
    code, _ = run([here.python, here.root / ".ci" / "kernels.py"], here.variables(), here.root)
    if code == 0:  # else the first run compiles what it needs
        stamp.write_text(kernels.sources())


def loopback_only(args: list[str]) -> None:
    if any(arg.partition("=")[0] in ("--ip", "--ServerApp.ip", "--Voila.ip") for arg in args):
        sys.exit("dev: --ip came, but we only listen on this machine. From afar: ssh -L 8888:127.0.0.1:8888 HOST")


def browser() -> list[str]:
    """Open one only where there is a screen."""
    screen = sys.platform == "darwin" or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    return [] if screen else ["--no-browser"]


def lint(here: Environment, args: list[str]) -> None:
    worst = 0
    modules = (["ruff", "check"], ["ruff", "format", "--check"], ["mypy", "dspkit", "benchmarks", "reproduction"])
    for words in (*[["-m", *module, *args] for module in modules], [".ci/prose.py"]):
        say(" ".join(words).removeprefix("-m "))
        started = time.monotonic()
        code, _ = run([here.python, *words], here.variables(), here.root)
        say(f"  {'fine' if code == 0 else f'exit code {code}'} after {time.monotonic() - started:.1f} s")
        worst = worst or code
    sys.exit(worst)


def side_by_side(args: list[str]) -> list[str]:
    """Two processes for the tests, a file in one of them, in the order of collection: those with Spark wait a lot."""
    one = any(arg.startswith(("-n", "--numprocesses", "--dist", "--pdb", "--trace")) for arg in args)
    return [] if one else ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]


def fuzzer(here: Environment) -> None:
    """Install atheris, which no other command needs and which exists for few machines."""
    if run([here.python, "-c", "import atheris"], here.variables(), here.root, quiet=True)[0] == 0:
        return
    say("installing the fuzzer")
    pip = [here.python, "-m", "pip", "install", "--no-deps", "--only-binary=:all:", "--require-hashes"]
    if run([*pip, "-r", here.root / ".ci" / "fuzz.txt"], here.variables(), here.root)[0]:
        sys.exit("dev: atheris could not be installed; it needs Linux on x86_64 with Python 3.11 to 3.13")


def clean(here: Environment) -> None:
    started = time.monotonic()
    made = [here.root / name for name in (".venv", ".cache", "build", "logs", "dist", "derby.log")]
    for folder, below, _ in os.walk(here.root):
        made += [Path(folder, name) for name in below if name in CACHES.split() or name.endswith(".egg-info")]
        below[:] = [n for n in below if Path(folder, n) not in made and n not in (".git", "runs", "reports")]
    for path in made:
        if path.exists() or path.is_symlink():
            say(f"removing {path.relative_to(here.root)}")
            remove(path)
    say(f"clean after {time.monotonic() - started:.1f} s; kept runs/ and reports/: what is in there is yours")


def die_on_sigterm() -> None:
    """End as an error ends, so that what runs below us is ended too."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def main(command: str, args: list[str]) -> None:
    die_on_sigterm()
    here = Environment(ROOT)
    modules = {
        "test": ["-m", "pytest", *side_by_side(args), *args],
        "bench": ["-m", "benchmarks", *args],
        "report": ["-m", "dspkit", "report", *(args or [workspace.START])],
        "demo": ["-m", "dspkit.demo", *args],
        "reproduce": ["-m", "reproduction", *args],
        "jar": ["-c", "from dspkit.spark.runtime.java import build; print(build(), 'is built')", *args],
        "lock": [".ci/lock.py", *args],
        "docs": [".ci/website.py", *args],
        "picture": [".ci/picture.py", *args],
        "release": [".ci/release.py", *args],
        "fuzz": ["tests/fuzz.py", *args],
    }
    if command == "clean":
        clean(here)
    elif command in (*modules, "lab", "app", "lint", "setup"):
        here.ensure()
        if command == "fuzz":
            fuzzer(here)
        if command in modules:
            say(f"{command}: python {' '.join(modules[command])}")
            become(here, *modules[command])  # which does not return
        if command in ("setup", "lab", "app"):
            compile_kernels(here)
        if command != "setup":
            {"lab": lab, "app": app, "lint": lint}[command](here, args)
    else:
        print(__doc__)
        sys.exit(0 if command in ("help", "-h", "--help") else f"dev: {command!r} came, expected one of the above")


if __name__ == "__main__":
    try:
        main(*(sys.argv[1:2] or ["help"]), sys.argv[2:])
    except KeyboardInterrupt:
        sys.exit(130)
