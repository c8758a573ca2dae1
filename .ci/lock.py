"""Write constraints.txt again from pyproject.toml: `make lock`, or `make lock ARGS=--upgrade` for newer versions.

One lock for every platform and Python we support: versions with markers, no addresses, no CUDA, and torch without
its local part (+cpu), which only some places have.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = ROOT / ".cache"
COMPILE = "pip compile --universal --python-version 3.11 --all-extras --no-header --no-annotate --quiet --no-config"
LEFT_OUT = re.compile(r"(torch|triton|nvidia-|cuda-)")


def main(options: list[str]) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-qq", "--upgrade", "--target", CACHE / "uv", "uv"]
    subprocess.run(pip, check=True)
    fresh = CACHE / "constraints.txt"
    shutil.copy(ROOT / "constraints.txt", fresh)  # the resolver keeps these versions unless told --upgrade
    args = [CACHE / "uv" / "bin" / "uv", *COMPILE.split(), *options, "--output-file", fresh, "pyproject.toml"]
    subprocess.run(args, check=True, cwd=ROOT, env={**os.environ, "UV_CACHE_DIR": str(CACHE / "uv-cache")})
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    torch = next(need for need in extras["bo"] if need.startswith("torch=="))
    lines = [line for line in fresh.read_text(encoding="utf-8").splitlines() if re.match(r"\w", line)]
    lines = sorted([line for line in lines if not LEFT_OUT.match(line)] + [torch])
    head = "# Every version `make` installs. Written by `make lock` from pyproject.toml: change that, not this.\n"
    (ROOT / "constraints.txt").write_text(head + "\n".join(lines) + "\n", encoding="utf-8")
    print(f"constraints.txt: {len(lines)} packages")


if __name__ == "__main__":
    main(sys.argv[1:])
