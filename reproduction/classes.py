"""The classes of printed numbers, decided from the number, ours, and what ours is based on.

| class | meaning |
|---|---|
| exact | equal to the last printed digit, computed from printed inputs alone |
| re-made | within a tenth (or as the printed bound or word says) in a run that was not made for this number |
| ordering only | farther off, but the rows of its group are in the printed order |
| fitted | within a tenth, on a plant whose free parameters were set with this number in view |
| chosen after seeing | within a tenth, by a setting or reading that was chosen after its results were seen |
| missed | farther off, or another word |
| not modelled | there is no number of ours |
| input | an input of ours was inferred from it, or the model has it built in: it never counts |
"""

from __future__ import annotations

import re
from typing import Any

CLASSES = ("exact", "re-made", "ordering only", "fitted", "chosen after seeing", "missed", "not modelled", "input")
BASES = ("", "computed", "fitted", "chosen after seeing", "input", "timing")
NEAR = 0.1
NUMBER = re.compile(r"(<=|>=|<|>|about )?\s*([+-]?[\d,]*\.?\d+(?:e[+-]?\d+)?)(?:\.\.([+-]?[\d,]*\.?\d+))?")


def digits(printed: str) -> tuple[float, float | None, str, float] | None:
    """Return a printed number, the end of a range, its sign of comparison, and half a unit of its last digit.

    >>> digits("0.9096"), digits("<= 4"), digits("80..90"), digits("3, 4")
    ((0.9096, None, '', 5e-05), (4.0, None, '<=', 0.5), (80.0, 90.0, '', 0.5), None)
    """
    found = NUMBER.fullmatch(printed.strip())
    if found is None or re.fullmatch(r"\d+(, \d+)+", printed.strip()):
        return None
    sign, number, to = found.groups()
    number = number.replace(",", "")
    after = len(number.partition(".")[2].partition("e")[0])
    return float(number), float(to.replace(",", "")) if to else None, (sign or "").strip(), 0.5 * 10.0**-after


def near(printed: str, ours: Any) -> bool:
    """Return whether ours is the printed word, keeps the printed bound, or is within a tenth of the printed number."""
    known = digits(printed)
    if known is None or isinstance(ours, str):
        return str(ours).strip().lower() == printed.strip().lower()
    number, to, sign, half = known
    mine = float(ours)
    if sign in ("<", ">"):
        return mine < number if sign == "<" else mine > number
    if sign in ("<=", ">="):
        return mine <= number + half if sign == "<=" else mine >= number - half
    if to is not None:
        low, high = sorted((number, to))
        return low - half - NEAR * abs(low) <= mine <= high + half + NEAR * abs(high)
    return abs(mine - number) <= max(half, NEAR * abs(number))


def classify(printed: Any, ours: Any, basis: str = "", *, ordered: bool = False) -> str:
    """Return the class of a printed number.

    >>> classify("0.9096", 0.90961, "computed"), classify("65", 61.7), classify("65", 61.7, "fitted")
    ('exact', 're-made', 'fitted')
    >>> classify("65", 30), classify("65", 30, ordered=True), classify("65", None), classify("65", 30, "fitted")
    ('missed', 'ordering only', 'not modelled', 'missed')
    >>> classify("65", 65, "timing"), classify("65", 65, "timing", ordered=True)
    ('missed', 'ordering only')
    """
    if basis not in BASES:
        raise ValueError(f"got basis {basis!r}; expected one of {BASES}; choose one")
    printed = str(printed) if isinstance(printed, str) else repr(float(printed))
    if ours is None or ours == "not modelled":
        return "not modelled"
    if basis == "input":
        return "input"
    if basis == "timing" or not near(printed, ours):  # another solver on another machine
        return "ordering only" if ordered else "missed"
    if basis == "computed":
        known = digits(printed)
        equal = (
            known is None or bool(known[2]) or known[1] is not None or abs(float(ours) - known[0]) <= known[3] * 1.001
        )
        return "exact" if equal else "re-made"
    return basis or "re-made"
