"""Relative links of Markdown pages that leave their place: README on a package index, pages beside copied notebooks."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LINK = re.compile(r"(!?\[[^\]\[]*(?:\[[^\]]*\][^\]\[]*)*\]\()([^)\s]+)(\))")
FENCE = re.compile(r"(^ *```.*?^ *```$)", re.DOTALL | re.MULTILINE)


@functools.cache
def repository() -> str:
    """Return the address of the repository, which stands in pyproject.toml only."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return str(project["urls"]["Repository"])


def changed(text: str, new: Callable[[str, str], str | None]) -> str:
    """Return Markdown whose relative links are changed, those in blocks of code left alone.

    Parameters
    ----------
    text : str
        The page.
    new : callable
        Maps a link without its anchor, and the anchor with its #, to the new link, or to None to keep it.
    """

    def link(found: re.Match[str]) -> str:
        target, sign, anchor = found[2].partition("#")
        if not target or re.match(r"[a-z]+:", target):
            return found[0]
        return found[0] if (to := new(target, sign + anchor)) is None else f"{found[1]}{to}{found[3]}"

    return "".join(part if i % 2 else LINK.sub(link, part) for i, part in enumerate(FENCE.split(text)))


def relative(text: str) -> list[str]:
    """Return the relative links of a page, without anchors."""
    found: list[str] = []
    changed(text, lambda target, anchor: found.append(target))
    return found


def address(path: Path) -> str:
    """Return the address of a file or folder in the repository; that of a picture is the picture itself."""
    kind = "tree" if path.is_dir() else "raw" if path.suffix in (".png", ".gif", ".svg") else "blob"
    return f"{repository()}/{kind}/main/{path.relative_to(ROOT).as_posix()}"


def absolute(text: str, source: Path, kept: Callable[[Path], bool] = lambda path: False) -> str:
    """Return Markdown whose links to files of the repository are addresses of it, unless a link is to be kept."""

    def new(target: str, anchor: str) -> str | None:
        path = (source.parent / target).resolve()
        if not path.is_relative_to(ROOT) or not path.exists() or kept(path):
            return None
        return address(path) + anchor

    return changed(text, new)
