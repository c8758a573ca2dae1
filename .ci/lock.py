"""Write constraints.txt again from pyproject.toml: `make lock`, or `make lock ARGS=--upgrade` for newer versions.

One lock for every platform and Python we support: versions with markers and the hashes of all their files, no
addresses, no CUDA, and torch without its local part (+cpu), which only some places have. The hashes of torch's CPU
builds, which PyPI does not have, are in .ci/torch-cpu.txt: all that the PyTorch project's index states, or, where it
cannot be reached, those that were there before and those of the files in the folders of PIP_FIND_LINKS. What torch from
PyPI needs on Linux is in .ci/torch-cuda.txt: the set-up takes it where there is no CPU build.
"""

import hashlib
import os
import re
import shutil
import subprocess
import sys
import urllib.parse
import urllib.request
from pathlib import Path

from environment import CPU_TORCH

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
COMPILE = """pip compile --universal --python-version 3.11 --all-extras --no-header --no-annotate --quiet --no-config
    --generate-hashes"""
LEFT_OUT = re.compile(r"(triton|nvidia-|cuda-)")  # of CUDA: the CPU builds of torch need none


def main(options: list[str]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--upgrade", "--target", CACHE / "uv", "uv"]
    subprocess.run(pip, check=True)
    fresh = CACHE / "constraints.txt"
    shutil.copy(ROOT / "constraints.txt", fresh)  # the resolver keeps these versions without --upgrade
    args = [CACHE / "uv" / "bin" / "uv", *COMPILE.split(), *options, "--output-file", fresh, "pyproject.toml"]
    subprocess.run(args, check=True, cwd=ROOT, env={**os.environ, "UV_CACHE_DIR": str(CACHE / "uv-cache")})
    entries = re.findall(r"^\w.*(?:\n +.*)*", fresh.read_text(encoding="utf-8"), re.MULTILINE)
    if bare := [entry for entry in entries if "--hash=sha256:" not in entry]:
        sys.exit(f"lock: no hash of {bare[0]!r}")
    head = "# Every version `make` installs, with the hashes of its files. `make lock` writes it from pyproject.toml.\n"
    cuda = sorted(entry for entry in entries if LEFT_OUT.match(entry))
    entries = sorted(set(entries) - set(cuda))
    (ROOT / "constraints.txt").write_text(head + "\n".join(entries) + "\n", encoding="utf-8")
    (ROOT / ".ci" / "torch-cuda.txt").write_text("\n".join(cuda) + "\n", encoding="utf-8")
    print(f"constraints.txt: {len(entries)} packages; .ci/torch-cuda.txt: {len(cuda)}")
    version = next(entry for entry in entries if entry.startswith("torch==")).split()[0].removeprefix("torch==")
    known = cpu_builds(version)
    (ROOT / ".ci" / "torch-cpu.txt").write_text("".join(f"{name} {known[name]}\n" for name in sorted(known)))
    print(f".ci/torch-cpu.txt: {len(known)} CPU builds of torch {version}")


def cpu_builds(version: str) -> dict[str, str]:
    """Return the hashes of the CPU builds of torch for Linux, by the name of the file."""
    wanted = f"torch-{version}+cpu-cp"
    known = dict(line.split() for line in (ROOT / ".ci" / "torch-cpu.txt").read_text().splitlines())
    known = {name: found for name, found in known.items() if name.startswith(wanted)}
    for place in os.environ.get("PIP_FIND_LINKS", "").split():
        for path in Path(place.removeprefix("file://")).glob(f"{wanted}*.whl"):
            known[path.name] = f"sha256:{hashlib.sha256(path.read_bytes()).hexdigest()}"
    try:
        with urllib.request.urlopen(f"{CPU_TORCH}/torch/", timeout=30) as answer:
            page = urllib.parse.unquote(answer.read().decode())
    except OSError as error:
        print(f"{CPU_TORCH}: {error}; the hashes of its files stay as they were")
        return known
    stated = re.findall(rf'/({re.escape(wanted)}[^"/]*linux[^"/]*\.whl)#(sha256)=(\w+)', page)
    return known | {name: f"{kind}:{value}" for name, kind, value in stated}


if __name__ == "__main__":
    main(sys.argv[1:])
