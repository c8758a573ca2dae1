"""The advice as data frames: with numbers to reckon with, and with words to read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .. import etp
from ..history import why_text
from .needs import Known, seconds, short

if TYPE_CHECKING:
    import pandas as pd

    from .advice import Advice


def operators(advice: Advice) -> pd.DataFrame:
    import pandas as pd

    seen, needs = advice.evidence.pooled, advice.needs
    # congested is who is asked for more than it can do, by however little: Stela's 1.2 is for rates that swing
    shares = etp.etp(advice.history.topology, etp.unblocked(advice.history.topology, seen), congestion_rate=1.0)
    rows = []
    for name in advice.history.topology.order:
        m, v, load = seen.operators.get(name), needs.true_rate[name], needs.load(name)
        rows.append(
            {
                "operator": name,
                "instances": needs.parallelism[name],
                "demand": needs.demand[name].value,
                "processing_rate": m.processing_rate if m else None,
                "true_rate": v.value, "true_rate_low": v.low, "true_rate_high": v.high,
                "utilisation": m.utilisation if m else None,
                "load": load.value, "load_low": load.low, "load_high": load.high,
                "etp": shares.get(name) if m else None,
                "bottleneck": name == advice.bottleneck,
                "windows": sum(name in s.operators for s in advice.evidence.windows),
            }
        )  # fmt: skip
    whole = {"operator": object, "instances": int, "bottleneck": bool, "windows": int}
    frame = pd.DataFrame(rows)
    return frame.astype({c: whole.get(str(c), float) for c in frame})


def parallelism(advice: Advice) -> pd.DataFrame:
    import pandas as pd

    told = {r.policy: r.deployment.parallelism for r in advice.recommendations if r.deployment is not None}
    rows = []
    for name in advice.history.topology.order:
        says = {policy: k[name] for policy, k in told.items()}
        least, most = (min(says.values()), max(says.values())) if says else (None, None)
        row: dict[str, Any] = {"operator": name, "now": advice.needs.parallelism[name], **says}
        row |= {"least": least, "most": most, "who": _who(says)}
        rows.append(row)
    return pd.DataFrame(rows)


def _who(says: dict[str, int]) -> str:
    """Who wants how many, fewest first."""
    counts: dict[int, list[str]] = {}
    for policy, k in says.items():
        counts.setdefault(k, []).append(policy)
    if len(counts) == 1 and len(says) > 1:
        return f"all {next(iter(counts))}"
    return "; ".join(f"{k}: {', '.join(counts[k])}" for k in sorted(counts))


def policies(advice: Advice) -> pd.DataFrame:
    import pandas as pd

    rows = []
    for r in advice.recommendations:
        after = advice.after.get(r.policy)
        rows.append(
            {
                "policy": r.policy,
                "says": r.says,
                "instances": r.deployment.instances if r.deployment else None,
                "keeps_up": None if after is None else after.keeps_up,
                "load": after.whole.value if after else None,
                "load_low": after.whole.low if after else None,
                "load_high": after.whole.high if after else None,
                "latency_s": after.latency_s if after else None,
                "agree": r.agree,
                "asked_after_s": r.after_s,
                "why": why_text(r.why),
                "note": "; ".join([*filter(None, [r.note]), *(after.notes if after else ())]),
                "made": r.made,
            }
        )
    numbers = ("instances", "load", "load_low", "load_high", "latency_s", "agree", "asked_after_s")
    return pd.DataFrame(rows).astype(dict.fromkeys(numbers, float))


def read_operators(advice: Advice) -> pd.DataFrame:
    """As `operators`, for readers."""
    import pandas as pd

    needs, seen, shares = advice.needs, advice.evidence.pooled.operators, advice.operators.set_index("operator")["etp"]
    rows = []
    for name in advice.history.topology.order:
        m = seen.get(name)
        rows.append(
            {
                "operator": f"{name}{' (bottleneck)' if name == advice.bottleneck else ''}",
                "instances": needs.parallelism[name],
                "asked of it, records/s": _number(needs.demand[name].value),
                "done, records/s": _number(m.processing_rate if m else None),
                "one instance can do, records/s": needs.true_rate[name].said,
                "busy": _percent(m.utilisation if m else None),
                "load": share(needs.load(name)),
                "ETP": _percent(float(shares[name])),
                "waiting": _number(m.backlog if m and name not in advice.unqueued else None),
            }
        )
    return pd.DataFrame(rows)


def read_policies(advice: Advice) -> pd.DataFrame:
    """As `policies`, for readers; why is a table of its own."""
    import pandas as pd

    rows = []
    for r in advice.recommendations:
        after = advice.after.get(r.policy)
        rows.append(
            {
                "policy": f"{r.policy}{' (advised)' if r.policy == advice.choice else ''}",
                "recommends": r.says if r.deployment else f"{r.says}; {r.note}",
                "instances": str(r.deployment.instances) if r.deployment else "",
                "load afterwards": share(after.whole) if after else "",
                "keeps up": {None: "", True: "yes", False: "no"}[after.keeps_up if after else None],
                "latency": seconds(after.latency_s) if after and after.latency_s is not None else "",
                "same in parts": _percent(r.agree) if r.agree is not None else "",
                "note": "; ".join(after.notes) if after else "",
            }
        )
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[c for c in ("latency", "note", "same in parts") if not frame[c].any()])


def read_parallelism(advice: Advice) -> pd.DataFrame:
    """As `parallelism`, without a column for each policy."""
    frame = advice.parallelism
    shown = frame[["operator", "now"]].copy()
    if advice.after:
        same = frame["least"] == frame["most"]
        ends = frame["least"].astype(str) + " to " + frame["most"].astype(str)
        shown["recommended"] = ends.where(~same, frame["least"].astype(str))
    shown["who says what"] = frame["who"]
    return shown


def read_reasons(advice: Advice) -> pd.DataFrame:
    """Each policy's why, one reason a line."""
    import pandas as pd

    rows = [(r.policy, r.made, why_text(r.why).replace("; ", ";\n") or r.note) for r in advice.recommendations]
    return pd.DataFrame(rows, columns=["policy", "as asked", "why"])


def share(known: Known) -> str:
    """A share with its interval as percentages."""
    if known.value is None:
        return "unknown"
    between = "" if known.low is None or known.high is None else f" ({_percent(known.low)} to {_percent(known.high)})"
    return f"{_percent(known.value)}{between}"


def _percent(value: float | None) -> str:
    if value is None or value != value:
        return "unknown"
    return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "unknown" if value is None or value != value else short(value)
