"""The virtual environment .venv of one checkout: its expected contents, its faults, and their repair.

It needs only the standard library and the Python that `make` was given: it runs before anything is installed.
"""

import contextlib
import fcntl
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

MISMATCH = "DO NOT MATCH THE HASHES"  # of pip
# They build us, and pyspark.
BUILDERS = ("editables", "hatchling", "packaging", "pathspec", "pluggy", "setuptools", "trove-classifiers")
CPU_TORCH = "https://download.pytorch.org/whl/cpu"  # the PyTorch project's own builds without CUDA
MOVED = """JUPYTER_CONFIG_DIR JUPYTER_DATA_DIR JUPYTER_RUNTIME_DIR JUPYTERLAB_SETTINGS_DIR JUPYTERLAB_WORKSPACES_DIR
    IPYTHONDIR NUMBA_CACHE_DIR MPLCONFIGDIR NPM_CONFIG_CACHE XDG_CACHE_HOME HYPOTHESIS_STORAGE_DIRECTORY"""
# They would put packages elsewhere, or make pip count packages that lie elsewhere.
MISLEADING = ("PYTHONPATH", "PYTHONHOME", "PIP_TARGET", "PIP_PREFIX", "PIP_USER")


def say(text: str) -> None:
    print(f"dev: {text}", flush=True)


def run(args: list, env: dict, cwd: Path, *, quiet: bool = False, fds: tuple = ()) -> tuple[int, str]:
    """Run one command to its end, and end it when we are ended. Say every 20 s that it is still running."""
    out, err = (subprocess.PIPE, subprocess.STDOUT) if quiet else (None, None)
    process = subprocess.Popen(
        [str(a) for a in args], env=env, cwd=cwd, stdout=out, stderr=err, text=True, pass_fds=fds
    )
    started = time.monotonic()
    try:
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                output, _ = process.communicate(timeout=20)
                return process.returncode, output or ""
            say(f"  still running after {time.monotonic() - started:.0f} s")
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def remove(path: Path) -> None:
    """Remove a file, a folder, or a link (never what a link points at)."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def version_of(info: Path) -> str:
    return info.name.removesuffix(".dist-info").rpartition("-")[2]


def bad_files(info: Path) -> list[str]:
    """Return the files of one package that are missing or have changed size; compiled files do not count."""
    site, bad = str(info.parent), []
    for line in (info / "RECORD").read_text(encoding="utf-8").splitlines():
        path, _, size = line.rsplit(",", 2)
        if not path.endswith(".pyc"):
            try:
                found = os.stat(f"{site}/{path.strip(chr(34))}").st_size
            except OSError:
                found = None
            if found is None or (size and found != int(size)):
                bad.append(path)
    return bad


class Environment:
    """The virtual environment of one checkout: its expected contents, its faults, and their repair."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.venv = root / ".venv"
        self.python = self.venv / "bin" / "python"
        self.site = self.venv / "lib" / "python{}.{}".format(*sys.version_info) / "site-packages"
        self.stamp = self.venv / "dspkit-stamp.json"
        self.pins = (root / "constraints.txt").read_text(encoding="utf-8")
        texts = [root / ".ci" / f"torch-{kind}.txt" for kind in ("cpu", "cuda")]
        self.cpu_hashes, self.cuda = (p.read_text(encoding="utf-8") if p.is_file() else "" for p in texts)
        project = (root / "pyproject.toml").read_text(encoding="utf-8")
        self.name = canonical(re.search(r'^name = "(.+)"', project, re.MULTILINE)[1])
        # What we answer for: the locked packages, pip and the project itself. Others that you add are yours.
        self.ours = {canonical(n) for n in re.findall(r"^([\w.-]+)==", self.pins, re.MULTILINE)} | {self.name, "pip"}
        # The path is in it because the scripts in .venv/bin carry it: a moved checkout is set up again.
        parts = (project, self.pins, self.cpu_hashes, sys.version.split()[0], str(root))
        self.wanted = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        self.held: tuple[int, ...] = ()

    def variables(self) -> dict[str, str]:
        """The user's variables, with every place our tools would write to moved below .cache/."""
        cache, home = self.places()
        ours = {"PIP_CACHE_DIR": str(cache / "pip"), "OMP_NUM_THREADS": "1", "DSPKIT_HOME": str(home)}
        env = {**ours, **os.environ}  # for these, what you have set goes first
        env.update({name: str(cache / name.lower()) for name in MOVED.split()})
        temp = cache / "tmp"
        if len(str(temp)) <= 55:  # sockets are made in here, and the path of a socket ends at 108 characters
            temp.mkdir(parents=True, exist_ok=True)
            env.update(TMPDIR=str(temp), SPARK_LOCAL_DIRS=str(temp))
        if sys.platform == "linux" and env.get("LC_ALL") in ("C", "POSIX"):
            env["LC_ALL"] = "C.UTF-8"  # or Python does not start where the path of the checkout is not plain ASCII
        env.update(VIRTUAL_ENV=str(self.venv), SPARK_LOCAL_IP="127.0.0.1")
        env.update(PYSPARK_PYTHON=str(self.python), PYSPARK_DRIVER_PYTHON=str(self.python))
        env["PATH"] = f"{self.python.parent}{os.pathsep}{env.get('PATH', os.defpath)}"
        return env

    def places(self) -> tuple[Path, Path]:
        """Return the folders for caches, and for runs and reports: in this checkout if it is ours to write to.

        Otherwise it belongs to another user, or is read-only: a folder of this user's own, in the temporary folder.
        """
        if self.writable():
            return self.root / ".cache", self.root
        own = Path(tempfile.gettempdir()) / f"dspkit-{os.getuid()}"
        with contextlib.suppress(FileExistsError):
            own.mkdir(mode=0o700)
        found = own.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
            sys.exit(f"dev: {own} is not a folder of yours; this checkout cannot be written to. Set TMPDIR to another.")
        name = hashlib.sha256(str(self.root).encode()).hexdigest()[:8]
        return own / name / "cache", own / name

    def writable(self) -> bool:
        return os.access(self.root, os.W_OK) and os.access(self.root / "pyproject.toml", os.W_OK)

    # ---- faults

    def why_anew(self) -> str:
        """Return the reason why .venv has to be created again instead of repaired, or ''."""
        if not self.venv.is_dir():
            return "there is none"
        expected = "{}.{}".format(*sys.version_info)
        probe = "import sys; print('{}.{}'.format(*sys.version_info))"
        try:
            if not re.search(
                f"^command = .* {re.escape(str(self.venv))}$", (self.venv / "pyvenv.cfg").read_text(), re.M
            ):
                return "it was made in another place"  # its scripts begin with the path of that place
            answer = subprocess.run(
                [self.python, "-ISc", probe], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, ValueError, subprocess.TimeoutExpired) as error:
            return f"its interpreter does not start: {error}"
        came = (answer.stdout or answer.stderr).strip()
        return "" if came == expected else f"its interpreter says {came!r}, expected {expected!r}"

    def last(self) -> dict[str, str]:
        """The packages the last complete set-up left, by version; {} unless it was for this lock, Python and path."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            stamp = json.loads(self.stamp.read_text(encoding="utf-8"))
            return dict(stamp["packages"]) if stamp["wanted"] == self.wanted else {}
        return {}

    def installed(self) -> dict[str, list[Path]]:
        """Our packages that are there, each with its .dist-info folder (two: an upgrade was cut short)."""
        found: dict[str, list[Path]] = {}
        for info in self.site.glob("*.dist-info"):
            name = canonical(info.name.rpartition("-")[0].rpartition("-")[0])
            if name in self.ours:
                found.setdefault(name, []).append(info)
        return found

    def faults(self, expected: dict[str, str]) -> dict[str, str]:
        """Return the faults per package: existence, version, and the size of every file (0.2 s for 40,000 files)."""
        found = self.installed()
        wrong = {name: "missing" for name in {"pip", *expected} if name not in found}
        for name, infos in found.items():
            version = version_of(infos[0])
            if len(infos) > 1 or not (infos[0] / "RECORD").is_file():
                wrong[name] = "half installed"
            elif version != expected.get(name, version):
                wrong[name] = f"is {version}, expected {expected[name]}"
            elif bad := bad_files(infos[0]):
                wrong[name] = f"{len(bad)} files missing or changed, such as {bad[0]}"
        return wrong

    # ---- repair

    def ensure(self) -> None:
        """Make .venv complete and whole. One at a time: a second caller waits, then finds the work done."""
        started = time.monotonic()
        if not self.writable():
            self.must_be_whole()
            say(f"this checkout cannot be written to: caches, runs and reports go to {self.places()[1]}")
            return
        with open(self.root / "pyproject.toml", "r+b") as lock:  # r+: NFS only locks what is open for writing
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say("another command is setting this checkout up; waiting for it")
                fcntl.flock(lock, fcntl.LOCK_EX)
            self.held = (lock.fileno(),)  # pip holds the lock too: when we are killed, it works on to its end
            anew, expected = self.why_anew(), self.last()
            faults = {} if anew else self.faults(expected)
            if "pip" in faults:
                anew, faults = f"its pip: {faults['pip']}", {}
            if anew or faults or not expected:
                self.repair(anew, faults, expected)
        say(f"environment ready after {time.monotonic() - started:.1f} s")

    def must_be_whole(self) -> None:
        """End with one sentence if .venv lacks something: only its owner can repair it."""
        expected = self.last()
        try:
            faults = self.why_anew() or next((f"{name}: {why}" for name, why in self.faults(expected).items()), "")
        except OSError as error:
            faults = str(error)
        if faults or not expected:
            faults = faults or "it was not set up to its end"
            advice = "let its owner run `make setup` there (with umask 022), or clone it to a folder of your own"
            sys.exit(
                f"dev: .venv of this checkout cannot be used ({faults}), nor repaired, as it is not yours; {advice}."
            )

    def repair(self, anew: str, faults: dict[str, str], expected: dict[str, str]) -> None:
        if anew:
            self.create(anew)
        remove(self.stamp)
        self.fill(faults, expected)
        if left := self.faults({}):
            self.create(f"still broken: {left}")
            self.fill({}, {})
            if left := self.faults({}):
                sys.exit(f"dev: still broken after a fresh start: {left}. Expected whole packages; is the disk full?")
        packages = {name: version_of(infos[0]) for name, infos in self.installed().items()}
        fresh = self.stamp.with_suffix(".new")
        fresh.write_text(json.dumps({"wanted": self.wanted, "packages": packages}, indent=1), encoding="utf-8")
        fresh.replace(self.stamp)

    def create(self, why: str) -> None:
        remove(self.venv)
        base = getattr(sys, "_base_executable", None) or sys.executable  # .venv's own may be the one running this
        python = sys.version.split()[0]
        self.step(f"making .venv with Python {python} ({why})", [base, "-Im", "venv", "--without-pip", self.venv])
        if importlib.util.find_spec("ensurepip"):
            self.step("putting pip into it", [self.python, "-Im", "ensurepip", "--default-pip"])
        elif importlib.util.find_spec("pip"):  # Debian keeps ensurepip in python3-venv, which may be absent
            args = [sys.executable, "-m", "pip", "--python", self.python, "install", "pip"]
            self.step("putting pip into it with the pip of this Python", args)
        else:
            sys.exit(
                "dev: this Python has neither ensurepip nor pip, one is needed. On Debian: apt-get install python3-venv"
            )

    def fill(self, faults: dict[str, str], expected: dict[str, str]) -> None:
        """Install what is missing, at the locked versions; install again what is broken."""
        for name, fault in faults.items():
            say(f"{name}: {fault}")
        for leftover in self.site.glob("~*"):  # pip renames what it replaces and, when killed, leaves it
            remove(leftover)
        found, again = self.installed(), []
        for name in sorted(faults.keys() & found.keys()):
            if len(found[name]) > 1 or not (found[name][0] / "RECORD").is_file():
                for info in found.pop(name):  # pip refuses to replace a package whose list of files is lost
                    remove(info)
            elif name not in ("torch", self.name):
                again.append(name)
        if again:
            wanted = [entry for entry in self.entries() if self.name_of(entry) in again]
            self.locked(f"reinstalling {' '.join(again)}", wanted, "--force-reinstall")
        entries = [entry for entry in self.entries() if self.name_of(entry) != "torch"]
        # What builds other packages comes first: pip would fetch it again by itself, without looking at its hash.
        self.locked("installing the tools that build packages", [e for e in entries if self.name_of(e) in BUILDERS])
        if torch := [entry for entry in self.entries() if self.name_of(entry) == "torch"]:
            version = re.match(r"torch==([^\s;]+)", torch[0])[1]
            now = [version_of(info).partition("+")[0] for info in found.get("torch", [])]
            if "torch" in faults or now != [version]:
                self.torch(version, torch[0])
        text = "installing what constraints.txt locks (at first: some minutes, 2.5 GB; later: seconds)"
        self.locked(text, entries)
        project = self.pip("--no-deps", "--no-build-isolation", "-e", f"{self.root}[all,test]")
        self.step("installing this checkout itself", project)

    def entries(self, lock: str | None = None) -> list[str]:
        """Return the requirements of the lock, or of another text, each with its marker and hashes, in one line."""
        lines = (self.pins if lock is None else lock).replace("\\\n", " ").splitlines()
        return [" ".join(line.split()) for line in lines if re.match(r"\w", line)]

    @staticmethod
    def name_of(entry: str) -> str:
        return canonical(re.match(r"[\w.-]+", entry)[0])

    def locked(self, text: str, entries: list[str], *options: str, may_fail: bool = False) -> int:
        """Install requirements of the lock, of which pip accepts only the files whose hashes are in it."""
        if not entries:
            return 0
        wanted = self.venv / "requirements.txt"
        wanted.write_text("\n".join(entries) + "\n", encoding="utf-8")
        options = ("--require-hashes", "--no-deps", "--no-build-isolation", *options)
        return self.step(text, self.pip(*options, "-r", wanted), may_fail=may_fail)

    def torch(self, version: str, entry: str) -> None:
        """Install the CPU build. Linux's plain version is several GB of CUDA, so +cpu is asked for by name first.

        The CPU builds are not on PyPI: .ci/torch-cpu.txt has the hashes of those that `make lock` could reach, and
        .ci/torch-cuda.txt what the plain version needs. Nothing is installed without a hash, unless you name the place.
        """
        again, cpu = ("--force-reinstall",), f"torch=={version}+cpu"
        if index := os.environ.get("TORCH_INDEX_URL"):
            args = self.pip(*again, "--no-deps", "--index-url", index, f"torch=={version}")
            self.step(f"installing torch=={version} from TORCH_INDEX_URL: you trust it, no hash is checked", args)
            return
        if sys.platform == "linux":
            tags = (f"-cp{sys.version_info[0]}{sys.version_info[1]}-", f"_{os.uname().machine}.whl")
            lines = [line.split() for line in self.cpu_hashes.splitlines() if line.startswith(f"torch-{version}+cpu-")]
            hashes = [word for name, word in lines if name.endswith("-none-any.whl") or all(t in name for t in tags)]
            pinned = " ".join([cpu, *(f"--hash={word}" for word in hashes)])
            for place, source in (("where pip looks", ()), (f"at {CPU_TORCH}", ("--index-url", CPU_TORCH))):
                if hashes and self.locked(f"installing {cpu}, {place}", [pinned], *again, *source, may_fail=True) == 0:
                    return
            reason = "was found" if hashes else "for this Python has its hash in .ci/torch-cpu.txt"
            say(f"WARNING: no CPU build of torch {reason}; taking that with CUDA, several GB. See docs/environment.md.")
            exactly = entry.replace("==", "===", 1)  # not a CPU build, which == takes for the same version
            self.locked(f"installing torch=={version}", [exactly, *self.entries(self.cuda)], *again)
            return
        self.locked(f"installing torch=={version}", [entry], *again)

    def pip(self, *args: object) -> list:
        return [self.python, "-m", "pip", "install", "--disable-pip-version-check", "--root-user-action=ignore", *args]

    def step(self, text: str, args: list, may_fail: bool = False) -> int:
        """Say one step of the set-up, do it, say how long it took; end with its exit code when it fails."""
        say(text)
        env = {name: value for name, value in self.variables().items() if name not in MISLEADING}
        started = time.monotonic()
        code, output = run(args, {**env, "PIP_USER": "0"}, self.root, quiet=True, fds=self.held)
        may_fail = may_fail and MISMATCH not in output  # a changed file is no reason to look for another one
        result = "done" if code == 0 else "not there" if may_fail else "FAILED"
        say(f"  {result} after {time.monotonic() - started:.1f} s")
        if code and not may_fail:
            print(*output.splitlines()[-30:], sep="\n", file=sys.stderr)
            print("dev: what is done is kept; the same command goes on from here.", file=sys.stderr)
            raise SystemExit(code if code > 0 else 128 - code)
        return code
