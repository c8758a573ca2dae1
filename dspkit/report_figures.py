"""The charts of a report's page: their data, made safe and small, and the scripts that draw them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from html import escape, unescape
from typing import Any

from .errors import DspkitError
from .report_html import packaged


class Figures:
    """The charts of one page; plotly.js comes once, and only if there is a chart."""

    def __init__(self) -> None:
        self._json: list[str] = []

    def place(self, figure: Any, title: str, sentence: str) -> str:
        """The chart's place on the page, with the sentence that says what it shows."""
        spec = _spec(figure)
        layout = spec.get("layout") or {}
        meta, heading = layout.get("meta"), layout.get("title")
        heading = heading.get("text") if isinstance(heading, Mapping) else heading
        heading = unescape(re.sub(r"<[^>]*>", " ", str(heading or ""))).strip()  # plotly's own little HTML
        summary = (
            (meta.get("summary") if isinstance(meta, Mapping) else "") or sentence or heading or title or "A chart"
        )
        name = f"figure-{len(self._json) + 1}"
        self._json.append(_figure_json(spec))
        said = escape(str(summary))
        return (
            f'<figure><div class="plot" role="img" aria-label="{said}" data-figure="{name}">'
            "<noscript>This chart needs JavaScript.</noscript></div>"
            f"<figcaption>{said}</figcaption></figure>"
        )

    def scripts(self, nonce: str) -> str:
        if not self._json:
            return ""
        from plotly.offline import get_plotlyjs

        data = "\n".join(
            f'<script type="application/json" id="figure-{i}">{text}</script>' for i, text in enumerate(self._json, 1)
        )
        library, own = (text.replace("</script", "<\\/script") for text in (get_plotlyjs(), packaged("report.js")))
        return f'{data}\n<script nonce="{nonce}">{library}</script>\n<script nonce="{nonce}">{own}</script>'


def _spec(figure: Any) -> Mapping[str, Any]:
    """A figure as plotly's plain data."""
    if hasattr(figure, "spec"):  # a dspkit.plots.Plot
        figure = figure.spec
    elif hasattr(figure, "to_dict"):  # a plotly Figure: number arrays come as base64
        figure = figure.to_dict()
    if not isinstance(figure, Mapping) or "data" not in figure:
        raise DspkitError(
            f"a figure that is a {type(figure).__name__}",
            expected="a plotly Figure, a dict with data and layout, or a Plot",
            fix="pass what dspkit.plots or plotly makes",
        )
    return figure


def _figure_json(spec: Mapping[str, Any]) -> str:
    from plotly.io.json import to_json_plotly

    kept = {key: spec[key] for key in ("data", "layout", "frames") if spec.get(key)}
    if isinstance(kept.get("data"), (list, tuple)):
        kept["data"] = [_packed(t) if isinstance(t, Mapping) else t for t in kept["data"]]
    text = str(to_json_plotly(kept))
    json.loads(text)  # what cannot be read back must fail here, not in the reader's browser
    # "</script>" in a name would end the element; in JSON these signs can all be written as escapes.
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def _packed(trace: Mapping[str, Any]) -> dict[str, Any]:
    """A trace with its long lists of numbers as plotly's base64 arrays where that is shorter; no digit is lost."""
    import numpy as np

    packed = dict(trace)
    for key in ("x", "y"):
        values = trace.get(key)
        if not isinstance(values, (list, tuple)) or len(values) < 64:
            continue
        if all(v is None or type(v) in (int, float) for v in values) and any(v is not None for v in values):
            array = np.array([np.nan if v is None else v for v in values], dtype="<f8")
            if np.array_equal(short := array.astype("<f4"), array, equal_nan=True):
                array = short
            encoded = base64.b64encode(array.tobytes()).decode()
            if len(encoded) < len(json.dumps(values, separators=(",", ":"))):  # "0," is shorter than any float
                packed[key] = {"dtype": "f4" if array.itemsize == 4 else "f8", "bdata": encoded}
    return packed
