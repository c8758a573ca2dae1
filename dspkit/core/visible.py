"""Characters that hide or reorder text, shown as escapes."""

from __future__ import annotations

import re

# Control characters other than tab and line break, soft hyphens, marks and overrides of the direction of writing,
# other separators of lines, spaces without width, tags, and halves of characters. Joiners of letters, the line break of
# Windows and the flags of countries in a country, which are written in tags, are kept.
_HIDDEN = re.compile(
    "(?P<kept>\r(?=\n)|\U0001f3f4[\U000e0061-\U000e007a]{4,6}\U000e007f)|"
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    """Return a text in which characters that could hide or reorder parts of it, or control a terminal, are escapes.

    Parameters
    ----------
    text : str
        Any text.

    Examples
    --------
    >>> print(visible("a\\x1b[31mb"))
    a\\x1b[31mb
    """
    return _HIDDEN.sub(lambda found: found["kept"] or found[0].encode("unicode_escape").decode(), text)


_JSON_ESCAPE = re.compile(r"\\(?:u(d[89ab][0-9a-f]{2})\\u(d[c-f][0-9a-f]{2})|u([0-9a-f]{4})|.)", re.IGNORECASE)


def visible_json(text: str) -> str:
    """Return a JSON text in whose words such characters, raw or escaped, are visible escapes.

    Parameters
    ----------
    text : str
        JSON.

    Examples
    --------
    >>> import json
    >>> print(json.loads(visible_json(json.dumps("a\\x1b[31mb"))))
    a\\x1b[31mb
    """

    def shown(found: re.Match[str]) -> str:
        high, low, one = found.groups()
        if high:
            character = bytes.fromhex(high + low).decode("utf-16-be")
        else:
            character = chr(int(one, 16)) if one else {"b": "\b", "f": "\f", "r": "\r"}.get(found[0][1], "")
        escaped = visible(character)
        return found[0] if escaped == character else escaped.replace("\\", "\\\\")

    text = _JSON_ESCAPE.sub(shown, text)
    return _HIDDEN.sub(lambda found: visible(found[0]).replace("\\", "\\\\"), text)
