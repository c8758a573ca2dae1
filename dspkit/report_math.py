r"""Formulas of prose as MathML, which browsers set themselves: no script, no font, no network.

It knows the LaTeX that notebooks use: letters, numbers, Greek, indices and powers, primes, fractions, roots, sums and
other large signs with their limits, functions by name, words, accents, brackets, cases and matrices. What it does not
know makes the whole formula stay as its source: shown raw is better than shown wrong.

>>> mathml(r"x_1^2")
'<math><msubsup><mi>x</mi><mn>1</mn><mn>2</mn></msubsup></math>'
>>> mathml(r"\unknown{x}") is None
True
"""

from __future__ import annotations

import re
from html import escape

TAGS = frozenset(
    "math mrow mi mo mn mtext mspace msub msup msubsup munder mover munderover mfrac msqrt mroot mtable mtr mtd".split()
)
ATTRIBUTES = {"math": {"display"}, "mo": {"stretchy", "lspace", "rspace"}, "mi": {"mathvariant"}, "mspace": {"width"}}
_TOKEN = re.compile(r"\\(?:[A-Za-z]+\*?|.)|\d+(?:\.\d+)?|\s+|.", re.DOTALL)
_GREEK = dict(
    zip(
        "alpha beta gamma delta epsilon varepsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau phi "
        "varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Phi Psi Omega ell".split(),
        "αβγδϵεζηθικλμνξπρστϕφχψωΓΔΘΛΞΠΣΦΨΩℓ", strict=True,
    )
)  # fmt: skip
_SIGNS = {
    "cdot": "⋅", "times": "×", "div": "÷", "pm": "±", "mp": "∓", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥",
    "ne": "≠", "neq": "≠", "ll": "≪", "gg": "≫", "approx": "≈", "sim": "∼", "equiv": "≡", "propto": "∝", "to": "→",
    "rightarrow": "→", "Rightarrow": "⇒", "leftarrow": "←", "mapsto": "↦", "in": "∈", "notin": "∉", "subset": "⊂",
    "subseteq": "⊆", "cup": "∪", "cap": "∩", "emptyset": "∅", "forall": "∀", "exists": "∃", "infty": "∞",
    "partial": "∂", "nabla": "∇", "ldots": "…", "dots": "…", "cdots": "⋯", "mid": "|", "lvert": "|", "rvert": "|",
    "lfloor": "⌊", "rfloor": "⌋", "lceil": "⌈", "rceil": "⌉", "langle": "⟨", "rangle": "⟩", "|": "‖", "{": "{",
    "}": "}", "%": "%", "_": "_", "&": "&", "#": "#", "$": "$", "circ": "∘", "ast": "∗", "star": "⋆", "setminus": "∖",
    "wedge": "∧", "vee": "∨", "neg": "¬", "top": "⊤", "backslash": "\\",
    "lVert": "‖", "rVert": "‖", "bmod": "mod",
}  # fmt: skip
_LARGE = {"sum": "∑", "prod": "∏", "bigcup": "⋃", "bigcap": "⋂"}
_INTEGRALS = {"int": "∫", "oint": "∮"}
_LIMITED = {"min", "max", "lim", "sup", "inf", "argmin", "argmax"}
_NAMED = _LIMITED | set("log ln exp sin cos tan det dim gcd Pr var".split())
_SPACES = {",": ".17em", ":": ".22em", ";": ".28em", " ": ".25em", "quad": "1em", "qquad": "2em", "!": "0em"}
_ACCENTS = {"bar": "¯", "overline": "¯", "hat": "^", "widehat": "^", "tilde": "~", "dot": "˙", "vec": "→"}
_WORDS = {"text", "mathrm", "operatorname", "textrm", "mathit", "textit", "mathbf", "textbf"}
_IGNORED = {"left", "right", "big", "Big", "bigl", "bigr", "Bigl", "Bigr", "displaystyle", "textstyle", "limits"}
_TABLES = {"cases", "matrix", "pmatrix", "bmatrix", "aligned"}
_FENCES = {"cases": ("{", ""), "pmatrix": ("(", ")"), "bmatrix": ("[", "]")}


_CELL_ENDS = ("&", "\\\\", "\\end")


class _Unknown(Exception):
    """A formula that is not of this subset."""


def mathml(text: str, *, display: bool = False) -> str | None:
    """The formula as a <math> element, on a line of its own with `display`; None if it says what is not known here."""
    try:
        reader = _Reader(text, display)
        inner = reader.row(())
        if reader.left:
            raise _Unknown(reader.left[0])
    except (_Unknown, IndexError, RecursionError):
        return None
    opened = '<math display="block">' if display else "<math>"
    return f"{opened}{inner}</math>" if inner else None


class _Reader:
    """Takes tokens from the left; each method gives the MathML of what it took."""

    def __init__(self, text: str, display: bool):
        self.left: list[str] = _TOKEN.findall(text)[::-1]
        self._display = display

    def row(self, ends: tuple[str, ...]) -> str:
        """Terms up to one of `ends`, which stays."""
        terms = []
        while (token := self._peek()) and token not in ends:
            terms.append(self._scripted())
        return "".join(terms)

    def _peek(self) -> str:
        while self.left and self.left[-1].isspace():
            self.left.pop()
        return self.left[-1] if self.left else ""

    def _take(self) -> str:
        if not self._peek():
            raise _Unknown("the end")
        return self.left.pop()

    def _expect(self, token: str) -> None:
        if self._take() != token:
            raise _Unknown(token)

    def _scripted(self) -> str:
        """A term with what is above and below it."""
        name = self._peek().lstrip("\\")
        base, below, above, primes = self._term(), "", "", ""
        while (sign := self._peek()) in ("_", "^", "'"):
            self.left.pop()
            if sign == "'":
                primes += "′"
            elif sign == "_" and not below:
                below = self._argument()
            elif sign == "^" and not above:
                above = self._argument()
            else:
                raise _Unknown("two indices")
        if primes:
            above = f"<mrow><mo>{primes}</mo>{above}</mrow>"
        over = name in _LIMITED or (name in _LARGE and self._display)
        kind = ("munder", "mover", "munderover") if over else ("msub", "msup", "msubsup")
        if below and above:
            return f"<{kind[2]}>{base}{below}{above}</{kind[2]}>"
        if below or above:
            tag = kind[0] if below else kind[1]
            return f"<{tag}>{base}{below or above}</{tag}>"
        return base

    def _argument(self) -> str:
        """One term, or a group in braces."""
        return self._term()

    def _group(self) -> str:
        inner = self.row(("}",))
        self._expect("}")
        return f"<mrow>{inner}</mrow>"

    def _raw(self) -> str:
        """The text of a group, spaces included."""
        self._expect("{")
        text = ""
        while self.left and self.left[-1] != "}":
            text += self.left.pop()
        self._expect("}")
        if "\\" in text.replace("\\_", "").replace("\\%", "").replace("\\ ", "") or "{" in text:
            raise _Unknown(text)
        return text.replace("\\", "")

    def _term(self) -> str:
        token = self._take()
        if token == "{":
            return self._group()
        if token.startswith("\\"):
            return self._command(token[1:])
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token.isalpha():
            return f"<mi>{escape(token)}</mi>"
        if token in "}_^'&$#%~":
            raise _Unknown(token)
        sign = "−" if token == "-" else token
        fixed = ' stretchy="false"' if token in "()[]|/" else ""
        return f"<mo{fixed}>{escape(sign)}</mo>"

    def _command(self, name: str) -> str:
        if name in _GREEK:
            return f"<mi>{_GREEK[name]}</mi>"
        if name in _SIGNS or name in _LARGE or name in _INTEGRALS:
            return f"<mo>{escape((_SIGNS | _LARGE | _INTEGRALS)[name])}</mo>"
        if name in _NAMED:
            return f'<mo lspace=".17em" rspace=".1em">{name}</mo>'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"></mspace>'
        if name in ("frac", "tfrac", "dfrac"):
            return f"<mfrac>{self._argument()}{self._argument()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self._argument()}</msqrt>"
        if name in _ACCENTS:
            return f"<mover>{self._argument()}<mo>{_ACCENTS[name]}</mo></mover>"
        if name == "mathcal":
            return f"<mi>{''.join(map(_script, self._raw() if self._peek() == '{' else self._take()))}</mi>"
        if name in _WORDS:
            return f"<mtext>{escape(self._raw())}</mtext>"
        if name in _IGNORED:
            if name in ("left", "right") and self._peek() == ".":
                self._take()
            return ""
        if name == "begin":
            return self._table()
        raise _Unknown(name)

    def _table(self) -> str:
        kind = self._raw()
        if kind not in _TABLES:
            raise _Unknown(kind)
        rows, cells = [], []
        while True:
            cells.append(f"<mtd>{self.row(_CELL_ENDS)}</mtd>")
            mark = self._take()
            if mark != "&":
                rows.append(f"<mtr>{''.join(cells)}</mtr>")
                cells = []
            if mark == "\\end":
                break
        if self._raw() != kind:
            raise _Unknown(kind)
        before, after = (f"<mo>{sign}</mo>" if sign else "" for sign in _FENCES.get(kind, ("", "")))
        return f"<mrow>{before}<mtable>{''.join(rows)}</mtable>{after}</mrow>"


def _script(letter: str) -> str:
    """A script capital; some of them have an older place of their own in Unicode."""
    if not "A" <= letter <= "Z":
        raise _Unknown(letter)
    return dict(zip("BEFHILMR", "ℬℰℱℋℐℒℳℛ", strict=True)).get(letter, chr(0x1D49C + ord(letter) - ord("A")))
