"""The comment about a change's speed: `benchmark_comment.py base-*.json change-*.json` prints a Markdown table.

Each claim has a ratio, change over base, of paired rounds, with a 95 % interval of the mean of
their logarithms (Student's t).
"""

from __future__ import annotations

import json
import math
import sys
from pathlib import Path
from statistics import fmean, stdev

T = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # 97.5 % by the number of rounds


def interval(ratios: list[float]) -> tuple[float, float, float]:
    """Return the geometric mean of ratios with its interval.

    >>> [round(x, 3) for x in interval([1.0, 1.0, 1.0])]
    [1.0, 1.0, 1.0]
    >>> middle, low, high = interval([2.0, 2.2, 1.8])
    >>> low < middle < high
    True
    """
    logs = [math.log(ratio) for ratio in ratios]
    middle = fmean(logs)
    half = T[len(logs)] * stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle), math.exp(middle - half), math.exp(middle + half)


def comment(paths: list[Path]) -> str:
    rounds = [json.loads(path.read_text(encoding="utf-8")) for path in paths]
    base = [r for path, r in zip(paths, rounds, strict=True) if path.name.startswith("base")]
    change = [r for path, r in zip(paths, rounds, strict=True) if path.name.startswith("change")]
    lines = ["| claim | base | change | change / base, 95 % interval | |", "|---|---|---|---|---|"]
    for name in sorted(set.intersection(*(set(r) for r in rounds))):
        a, b = [r[name]["value"] for r in base], [r[name]["value"] for r in change]
        if min(*a, *b) <= 0:
            continue
        middle, low, high = interval([y / x for x, y in zip(a, b, strict=True)])
        higher = base[0][name]["better"] == "higher"
        worse, better = (high < 1, low > 1) if higher else (low > 1, high < 1)
        verdict = "slower or worse" if worse else "better" if better else "no difference seen"
        unit = base[0][name]["unit"]
        ratio = f"{middle:.2f} ({low:.2f} to {high:.2f})"
        lines.append(f"| `{name}` | {fmean(a):.3g} {unit} | {fmean(b):.3g} {unit} | {ratio} | {verdict} |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(comment([Path(word) for word in sys.argv[1:]]))
