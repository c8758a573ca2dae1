r"""Prose and HTML from other sources, made safe and self-contained for a report.

Formulas become MathML, which browsers render themselves, without scripts, fonts or network. `latex2mathml` parses the
LaTeX. Where it would guess (an unknown command, an unbalanced brace), the formula is shown as its source: raw is better
than wrong. Because its output is not escaped, its tree is used, not its text, and only known elements and attributes
are written.
"""

from __future__ import annotations

import base64
import contextlib
import mimetypes
import re
import unicodedata
import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from html import escape, unescape
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..core.files import open_regular
from ..core.lazy import load

_CHILDREN = {
    "mfrac": 2,
    "mroot": 2,
    "msub": 2,
    "msup": 2,
    "munder": 2,
    "mover": 2,
    "msubsup": 3,
    "munderover": 3,
}
TAGS = frozenset("math mrow mstyle mi mo mn mtext mspace msqrt mtable mtr mtd".split()) | set(_CHILDREN)
ATTRIBUTES = {
    "math": {"display"},
    "mo": {"stretchy", "fence", "form", "lspace", "rspace", "minsize", "maxsize"},
    "mi": {"mathvariant"},
    "mspace": {"width"},
    "mfrac": {"linethickness"},
    "mstyle": {"displaystyle", "scriptlevel"},
    "mtd": {"columnalign"},
}
# Styled letters in Unicode are called "MATHEMATICAL SCRIPT CAPITAL V"; older ones "SCRIPT CAPITAL B".
_STYLES = {
    "script": ("MATHEMATICAL SCRIPT", "SCRIPT"),
    "double-struck": ("MATHEMATICAL DOUBLE-STRUCK", "DOUBLE-STRUCK"),
    "fraktur": ("MATHEMATICAL FRAKTUR", "BLACK-LETTER"),
    "bold": ("MATHEMATICAL BOLD",),
}
_LEFTOVERS = frozenset("{}$&#%~^_")


def mathml(text: str, *, display: bool = False) -> str | None:
    r"""Return the formula as a <math> element, or None if it is not understood completely.

    Parameters
    ----------
    text : str
        LaTeX without its dollar signs.
    display : bool
        Whether the formula has a line of its own.

    Examples
    --------
    >>> mathml(r"x_1^2")
    '<math display="inline"><mrow><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup></mrow></math>'
    >>> mathml(r"\unknown{x}") is None
    True
    """
    converter = load("latex2mathml.converter", "notebooks")
    if not _balanced(text):
        return None
    try:
        formula: ET.Element = converter.convert_to_element(text, display="block" if display else "inline")
    except Exception:  # its errors have no common class; invalid input may raise an IndexError
        return None
    if not all(map(_understood, formula.iter())):
        return None
    return ET.tostring(formula, encoding="unicode", short_empty_elements=False)


def _balanced(text: str) -> bool:
    depth = 0
    for brace in re.findall(r"\\.|[{}]", text, re.DOTALL):
        depth += {"{": 1, "}": -1}.get(brace, 0)
        if depth < 0:
            return False
    return depth == 0


def _understood(element: ET.Element) -> bool:
    """Make an element's text and attributes safe and plain; return False if the converter guessed."""
    words = unescape(element.text or "")  # the converter writes signs as &#x...;
    element.text = words
    for name in set(element.attrib) - ATTRIBUTES.get(element.tag, set()) - {"mathvariant"}:
        del element.attrib[name]
    if len(words) == 1 and (letter := _styled(words, element.attrib.get("mathvariant", ""))):
        element.text = letter  # browsers draw such letters of Unicode, and ignore mathvariant
        del element.attrib["mathvariant"]
    if element.tag not in TAGS or len(element) < _CHILDREN.get(element.tag, 0):
        return False
    return "\\" not in words and not (element.tag == "mi" and words in _LEFTOVERS)


def _styled(letter: str, style: str) -> str:
    case = "CAPITAL" if letter.isupper() else "SMALL"
    for name in _STYLES.get(style, ()):
        with contextlib.suppress(KeyError):
            return unicodedata.lookup(f"{name} {case} {letter.upper()}")
    return ""


MOST_BYTES = 3_000_000  # most bytes of an embedded image
# As nh3 writes it: every value in double quotes, which values cannot contain.
_IMAGE = re.compile(r'<img((?:\s+[\w-]+="[^"]*")*)\s*/?>')
_CLASSES = {"code": {"math"}, "pre": {"math", "output"}}


_DEEPEST = 512  # levels of elements, as in browsers; to clean them takes time by the square of their number
_TAG = re.compile(r"<(/?)([a-zA-Z][^\s/>]*)")
# Elements without an end, and those that the next of their kind ends.
_FLAT = frozenset("area br col hr img input wbr p li dt dd td th tr thead tbody tfoot option".split())


def _shallow(html: str) -> bool:
    """Return whether so few elements are open at any place that cleaning takes little time."""
    opened: Counter[str] = Counter()
    depth = 0
    for end, tag in _TAG.findall(html):
        name = tag.lower()
        if name in _FLAT or (end and not opened[name]):
            continue
        opened[name] += -1 if end else 1
        depth += -1 if end else 1
        if depth > _DEEPEST:
            return False
    return True


def clean(html: str, folder: Path | None = None) -> str:
    """Return `html` without scripts, styles, handlers and network access; images in `folder` are embedded."""
    if not _shallow(html):
        return f"<pre>{escape(html)}</pre>"
    nh3 = load("nh3", "notebooks")
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
    """Return Markdown as clean HTML; `$…$` becomes a formula, or its source if `mathml` does not understand it."""
    for name, bundle in (attachments or {}).items():
        for mime, data in bundle.items():
            text = text.replace(f"attachment:{name}", f"data:{mime};base64,{data}")
    return clean(_renderer()(text), folder)


def picture(mime: str, data: str, words: str = "a picture") -> str:
    """Return an image of a notebook output; an SVG inside <img> cannot run scripts."""
    if mime == "image/svg+xml":
        data = base64.b64encode(data.encode()).decode()
    return f'<img alt="{escape(words)}" src="data:{mime};base64,{"".join(data.split())}">'


@cache
def _renderer() -> Callable[[str], str]:
    mistune = load("mistune", "notebooks")

    def image(text: str, url: str, title: str | None = None) -> str:
        return f'<img alt="{escape(text)}" src="{escape(url)}">'  # mistune itself would refuse data: URLs

    renderer = mistune.HTMLRenderer(escape=False)  # inline HTML is allowed in notebooks; clean() sanitises it
    renderer.image = image
    made = mistune.create_markdown(renderer=renderer, plugins=["table", "strikethrough", "footnotes", "url", "math"])
    renderer.register("inline_math", lambda _, text: mathml(text) or f'<code class="math">{escape(text)}</code>')
    renderer.register("block_math", lambda _, text: _block(text.strip()))
    return made  # type: ignore[no-any-return]


def _block(text: str) -> str:
    return f"<p>{formula}</p>" if (formula := mathml(text, display=True)) else f'<pre class="math">{escape(text)}</pre>'


def _shown(image: re.Match[str]) -> str:
    """Return the image, or its alternative text if it is not available, instead of a broken-image icon."""
    values = dict(re.findall(r'([\w-]+)="([^"]*)"', image[1]))
    return image[0] if values.get("src") else f"<em>{escape(unescape(values.get('alt', '')))}</em>"


def _keep(tag: str, name: str, value: str) -> str | None:
    """Allow images from data URLs or, through `_inline`, from the notebook's folder; no links to data URLs."""
    scheme = urlsplit(value.strip()).scheme.lower()
    if name == "src":
        return value if not scheme or value.strip().lower().startswith("data:image/") else None
    return None if scheme == "data" else value


def _inline(url: str, folder: Path | None) -> str | None:
    """Return an image in the notebook's folder, or below it, as a data URL; other addresses are dropped."""
    mime = mimetypes.guess_type(url)[0] or ""
    if folder is None or unquote(url).startswith("/") or not mime.startswith("image/"):
        return None
    try:
        path, home = (folder / unquote(url)).resolve(), folder.resolve()
        if not path.is_relative_to(home):  # through "..", a symbolic link, or an absolute path
            return None
        with open_regular(path) as file:
            data = file.read(MOST_BYTES + 1)
    except (OSError, ValueError, RuntimeError):  # RuntimeError: symbolic links in a circle
        return None
    return f"data:{mime};base64,{base64.b64encode(data).decode()}" if len(data) <= MOST_BYTES else None
