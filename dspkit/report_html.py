"""Prose and HTML of others, made safe and self-contained for a report."""

from __future__ import annotations

import base64
import mimetypes
import re
from collections.abc import Callable, Mapping
from functools import cache
from html import escape, unescape
from importlib.resources import files as package_files
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from .errors import DspkitError
from .report_math import ATTRIBUTES, TAGS, mathml

MOST_BYTES = 3_000_000  # of one picture
# As nh3 writes it: every value in double quotes, which values cannot contain.
_IMAGE = re.compile(r'<img((?:\s+[\w-]+="[^"]*")*)\s*/?>')
_CLASSES = {"code": {"math"}, "pre": {"math", "output"}}


def clean(html: str, folder: Path | None = None) -> str:
    """`html` without scripts, styles, handlers, or anything that asks the network; pictures in `folder` go inline."""
    nh3 = _load("nh3")
    attributes = {tag: set(names) for tag, names in nh3.ALLOWED_ATTRIBUTES.items()}
    attributes |= {"details": {"open"}, **ATTRIBUTES}
    for tag in ("tr", "th", "td"):
        attributes[tag].add("style")
    safe = nh3.clean(
        html,
        tags=nh3.ALLOWED_TAGS | TAGS,
        attributes=attributes,
        attribute_filter=_keep,
        allowed_classes=_CLASSES,
        filter_style_properties={"text-align"},
        url_schemes={"http", "https", "mailto", "data"},
        url_relative=lambda url: _inline(url, folder),
    )
    return _IMAGE.sub(_shown, safe)


def markdown(text: str, folder: Path | None = None, attachments: Mapping[str, Mapping[str, str]] | None = None) -> str:
    """Markdown as clean HTML; `$…$` is set as a formula, or stays as its source where `mathml` does not know it."""
    for name, bundle in (attachments or {}).items():
        for mime, data in bundle.items():
            text = text.replace(f"attachment:{name}", f"data:{mime};base64,{data}")
    return clean(_renderer()(text), folder)


def picture(mime: str, data: str, words: str = "a picture") -> str:
    """An image of a notebook output; an SVG inside <img> cannot run scripts."""
    if mime == "image/svg+xml":
        data = base64.b64encode(data.encode()).decode()
    return f'<img alt="{escape(words)}" src="data:{mime};base64,{"".join(data.split())}">'


def packaged(name: str) -> str:
    """The text of a file that comes with dspkit."""
    return package_files("dspkit").joinpath(name).read_text("utf-8")


@cache
def _renderer() -> Callable[[str], str]:
    mistune = _load("mistune")

    def image(text: str, url: str, title: str | None = None) -> str:
        return f'<img alt="{escape(text)}" src="{escape(url)}">'  # mistune itself would refuse data: URLs

    renderer = mistune.HTMLRenderer(escape=False)  # inline HTML is allowed in notebooks; clean() goes over it
    renderer.image = image
    made = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "footnotes", "url", "math"])
    renderer.register("inline_math", lambda _, text: mathml(text) or f'<code class="math">{escape(text)}</code>')
    renderer.register("block_math", lambda _, text: _block(text.strip()))
    return made  # type: ignore[no-any-return]


def _block(text: str) -> str:
    return f"<p>{formula}</p>" if (formula := mathml(text, display=True)) else f'<pre class="math">{escape(text)}</pre>'


def _shown(image: re.Match[str]) -> str:
    """The image, or its words where the picture itself is not to be had: no broken-picture sign."""
    values = dict(re.findall(r'([\w-]+)="([^"]*)"', image[1]))
    return image[0] if values.get("src") else f"<em>{escape(unescape(values.get('alt', '')))}</em>"


def _keep(tag: str, name: str, value: str) -> str | None:
    """Pictures only from data or, through `_inline`, from beside the notebook; links never to data."""
    scheme = urlsplit(value.strip()).scheme.lower()
    if name == "src":
        return value if not scheme or value.strip().lower().startswith("data:image/") else None
    return None if scheme == "data" else value


def _inline(url: str, folder: Path | None) -> str | None:
    """A picture beside the notebook as a data URL; any other relative address would lead nowhere and is dropped."""
    mime = mimetypes.guess_type(url)[0] or ""
    if folder is None or url.startswith("/") or not mime.startswith("image/"):
        return None
    try:
        path = folder / unquote(url)
        if path.stat().st_size > MOST_BYTES:
            return None
        return f"data:{mime};base64,{base64.b64encode(path.read_bytes()).decode()}"
    except (OSError, ValueError):
        return None


def _load(name: str) -> Any:
    from importlib import import_module

    try:
        return import_module(name)
    except ImportError as error:
        raise DspkitError(
            str(error), expected="the packages of the notebooks", fix="pip install 'dspkit[lab]'"
        ) from error
