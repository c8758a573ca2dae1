"""Hooks of hatchling: the README as an index shows it, and the files of `dspkit lab`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

sys.path.insert(0, str(Path(__file__).resolve().parent))
import links

# Named by patterns, so that checkpoints, reports and untracked notebooks that lie there are not released.
PATTERNS = """notebooks/[0-9][0-9]_*.ipynb notebooks/README.md notebooks/images/*.png data/* reproduction/*.py
    reproduction/*.md reproduction/*/*.py reproduction/*/*.md reproduction/*/*.json reproduction/*/*.csv docs/*.md
    docs/*/*.md CONTRIBUTING.md"""


def files(root: Path) -> list[Path]:
    """Return the files that `dspkit lab` copies."""
    found = (path for pattern in PATTERNS.split() for path in root.glob(pattern))
    return sorted({path for path in found if path.is_file() and not path.name.startswith(".")})


class Readme(MetadataHookInterface):
    """The README with addresses instead of relative links."""

    def update(self, metadata: dict[str, Any]) -> None:
        source = Path(self.root, "README.md")
        text = links.absolute(source.read_text(encoding="utf-8"), source)
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


class Lab(BuildHookInterface[Any]):
    """Notebooks, studies, data and pages in the wheel; links that leave them are addresses of the repository."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # `dspkit lab` finds them in the checkout
            return
        root = Path(self.root)
        copied = files(root)
        self.pages = tempfile.TemporaryDirectory(prefix="dspkit-pages-")
        for number, path in enumerate(copied):
            # Copies, as hatchling takes each source once: data/ is in the wheel twice, for `workload` and for this.
            copy = Path(self.pages.name, f"{number}{path.suffix}")
            shutil.copyfile(path, copy)
            if path.suffix == ".md":
                text = links.absolute(path.read_text(encoding="utf-8"), path, set(copied).__contains__)
                copy.write_text(text, encoding="utf-8")
            build_data["force_include"][str(copy)] = f"dspkit/lab/{path.relative_to(root).as_posix()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if version != "editable":
            self.pages.cleanup()
