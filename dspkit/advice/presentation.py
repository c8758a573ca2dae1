"""The presentation of advice: data frames with numbers or with text, sentences, HTML for notebooks, a report page."""

from __future__ import annotations

from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import etp, plots
from ..core import changes, why_text
from ..core.html import html_table
from ..core.references import entries
from ..report import Section
from ..report import write as written
from .needs import IntervalEstimate, seconds, short

if TYPE_CHECKING:
    import pandas as pd

    from .advice import Advice


def operators(advice: Advice) -> pd.DataFrame:
    """Return one row per operator, with numbers."""
    import pandas as pd

    seen, needs = advice.evidence.pooled, advice.needs
    # congested means any load above capacity: Stela's 1.2 is for fluctuating rates
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
                "true_rate": v.value,
                "true_rate_low": v.low,
                "true_rate_high": v.high,
                "utilisation": m.utilisation if m else None,
                "load": load.value,
                "load_low": load.low,
                "load_high": load.high,
                "etp": shares.get(name) if m else None,
                "bottleneck": name == advice.bottleneck,
                "windows": sum(name in s.operators for s in advice.evidence.windows),
            }
        )
    whole = {"operator": object, "instances": int, "bottleneck": bool, "windows": int}
    frame = pd.DataFrame(rows)
    return frame.astype({c: whole.get(str(c), float) for c in frame})


def parallelism(advice: Advice) -> pd.DataFrame:
    """Return one row per operator: instances now and by policy."""
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
    """Return the policies by the number of instances they recommend, fewest first."""
    counts: dict[int, list[str]] = {}
    for policy, k in says.items():
        counts.setdefault(k, []).append(policy)
    if len(counts) == 1 and len(says) > 1:
        return f"all {next(iter(counts))}"
    return "; ".join(f"{k}: {', '.join(counts[k])}" for k in sorted(counts))


def policies(advice: Advice) -> pd.DataFrame:
    """Return one row per policy, with numbers."""
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
    """Return `operators` for readers."""
    import pandas as pd

    needs, seen, shares = advice.needs, advice.evidence.pooled.operators, advice.operators.set_index("operator")["etp"]
    rows = []
    for name in advice.history.topology.order:
        m = seen.get(name)
        rows.append(
            {
                "operator": f"{name}{' (bottleneck)' if name == advice.bottleneck else ''}",
                "instances": needs.parallelism[name],
                "demand, records/s": _number(needs.demand[name].value),
                "processed, records/s": _number(m.processing_rate if m else None),
                "capacity per instance, records/s": needs.true_rate[name].text,
                "busy": _percent(m.utilisation if m else None),
                "load": percent_interval(needs.load(name)),
                "ETP": _percent(float(shares[name])),
                "waiting": _number(m.backlog if m and name not in advice.unqueued else None),
            }
        )
    return pd.DataFrame(rows)


def read_policies(advice: Advice) -> pd.DataFrame:
    """Return `policies` for readers; the reasons are a table of their own."""
    import pandas as pd

    rows = []
    for r in advice.recommendations:
        after = advice.after.get(r.policy)
        rows.append(
            {
                "policy": f"{r.policy}{' (recommended)' if r.policy == advice.choice else ''}",
                "recommends": r.says if r.deployment else f"{r.says}; {r.note}",
                "instances": str(r.deployment.instances) if r.deployment else "",
                "load afterwards": percent_interval(after.whole) if after else "",
                "keeps up": {None: "", True: "yes", False: "no"}[after.keeps_up if after else None],
                "latency": seconds(after.latency_s) if after and after.latency_s is not None else "",
                "same in parts": _percent(r.agree) if r.agree is not None else "",
                "note": "; ".join(after.notes) if after else "",
            }
        )
    frame = pd.DataFrame(rows)
    return frame.drop(columns=[c for c in ("latency", "note", "same in parts") if not frame[c].any()])


def read_parallelism(advice: Advice) -> pd.DataFrame:
    """Return `parallelism` without a column per policy."""
    frame = advice.parallelism
    shown = frame[["operator", "now"]].copy()
    if advice.after:
        same = frame["least"] == frame["most"]
        ends = frame["least"].astype(str) + " to " + frame["most"].astype(str)
        shown["recommended"] = ends.where(~same, frame["least"].astype(str))
    shown["by policy"] = frame["who"]
    return shown


def read_reasons(advice: Advice) -> pd.DataFrame:
    """Return the reasons of each policy, one per line."""
    import pandas as pd

    rows = [(r.policy, r.made, why_text(r.why).replace("; ", ";\n") or r.note) for r in advice.recommendations]
    return pd.DataFrame(rows, columns=["policy", "configured as", "reasons"])


def percent_interval(value: IntervalEstimate) -> str:
    """Format a share with its interval as percentages."""
    if value.value is None:
        return "unknown"
    between = "" if value.low is None or value.high is None else f" ({_percent(value.low)} to {_percent(value.high)})"
    return f"{_percent(value.value)}{between}"


def _percent(value: float | None) -> str:
    if value is None or value != value:
        return "unknown"
    return f"{value:.2%}" if 0 < value < 0.01 else f"{value:.0%}"


def _number(value: float | None) -> str:
    return "unknown" if value is None or value != value else short(value)


_SURE, _LIKELY = 0.95, 0.8  # of resampled recordings


def sentences(advice: Advice) -> tuple[str, ...]:
    """Return the whole advice in sentences, the bottleneck first."""
    said = [
        *_bottleneck(advice),
        *policy_sentences(advice),
        *_choice(advice),
        f"This is based on {advice.evidence.sentence}",
    ]
    if advice.needs.blocks < 2:
        said.append("That is too little to estimate its certainty: record at least five windows under one load.")
    if once := _seen_once(advice):
        said.append(f"{once} ran at one parallelism only: additional instances are assumed to be as fast as these.")
    if advice.unqueued:
        everywhere = len(advice.unqueued) == len(advice.needs.parallelism)
        where = "" if everywhere else f" at {', '.join(advice.unqueued)}"
        said.append(f"The backlog was not measured{where}: policies see an empty queue.")
    if advice.outlook.note:
        said.append(advice.outlook.note)
    if advice.problems:
        dropped = "; ".join(f"{n} x {why}" for why, n in advice.problems.items())
        said.append(f"Dropped while loading: {dropped}.")
    return tuple(said)


def _seen_once(advice: Advice) -> str:
    """Return the operators whose scalability the recording does not show."""
    if not any(r.deployment and r.deployment.parallelism != r.now.parallelism for r in advice.recommendations):
        return ""
    ran: dict[str, set[int]] = {n: set() for n in advice.history.topology.order}
    for step in advice.history:
        for name, m in step.snapshot.operators.items():
            ran[name].add(m.parallelism)
    ran = {n: k for n, k in ran.items() if n not in advice.needs.unmetered}
    once = [n for n, k in ran.items() if len(k) == 1]
    return "All operators" if len(once) == len(ran) > 1 else ", ".join(once)


def _bottleneck(advice: Advice) -> list[str]:
    needs = advice.needs
    told, said = needs.bottleneck, []
    if needs.unknown:
        missing = ", ".join(needs.unknown)
        said.append(f"Cannot estimate the parallelism of {missing}: its true rate or its input rate was not measured.")
    if needs.unmetered:
        silent = ", ".join(needs.unmetered)
        said.append(
            f"The utilisation of {silent} is not measured: it is assumed to keep up, and keeps its parallelism."
        )
    if told is None:
        return [
            "There is no input, so there is no bottleneck." if advice.idle else "The bottleneck is unknown.",
            *said,
        ]
    name, often = told
    load, whole = needs.load(name), needs.whole()
    how = "" if often is None else ", for sure" if often >= _SURE else ", likely" if often >= _LIKELY else ", perhaps"
    drawn = "" if often is None else f" (in {often:.0%} of resampled recordings)"
    over = (whole.value if whole.value is not None else load.value or 0.0) >= 1
    if needs.execution == "micro-batch":
        first = f"{name} takes most of the time{how}{drawn}: {percent_interval(load)}."
        room = (
            f"All operators together take {percent_interval(whole)} of the available time."
            if whole.value is not None
            else ""
        )
        windows = advice.evidence.windows
        between = sum(s.commit_s for s in windows) / sum(s.window_s for s in windows)
        rest = f"Planning and committing batches take another {between:.0%} of the time." if between > 0.05 else ""
        return [" ".join(filter(None, (first, room, rest))), *said]
    if over:
        return [f"{name} is the bottleneck{how}{drawn}: its load is {percent_interval(load)} of its capacity.", *said]
    among = " of those with known load" if needs.unknown else ""
    spare = f" The job could process {1 / load.value:.3g} times this load." if load.value and not needs.unknown else ""
    capacity = f"at {percent_interval(load)} of its capacity"
    first = f"No operator{among} is overloaded; the first would be {name}{how}{drawn}, {capacity}."
    return [first + spare, *said]


def policy_sentences(advice: Advice) -> list[str]:
    """Return sentences on the agreement of policies, and on those without a recommendation."""
    told = [r for r in advice.recommendations if r.deployment is not None]
    mute = [r.policy for r in advice.recommendations if r.deployment is None]
    said = [] if told else ["No policy has a recommendation."]
    if told:
        frame = advice.parallelism
        apart = frame[frame["least"] != frame["most"]]
        if len(told) == 1:
            said.append(f"{told[0].policy} recommends: {told[0].says}.")
        elif not len(apart):
            said.append(f"All {len(told)} policies with a recommendation agree: {told[0].says}.")
        else:
            widest = apart.loc[(apart["most"] - apart["least"]).idxmax()]
            agreed = "" if len(apart) == len(frame) else f" on {len(apart)} of {len(frame)} operators"
            said.append(f"Policies disagree{agreed}, most about {widest['operator']}: {widest['who']}.")
    if mute:
        said.append(f"No recommendation from {', '.join(mute)}: the table shows what they lack.")
    return said


def _choice(advice: Advice) -> list[str]:
    if advice.idle:
        return ["For an idle job policies recommend their minimum: record it under load."]
    if advice.choice is None:
        late = [a.latency_s for a in advice.after.values() if a.keeps_up and a.latency_s is not None]
        if late and advice.target_latency_s is not None:
            told = f"the lowest is {seconds(min(late))}, the target {seconds(advice.target_latency_s)}"
            return [f"No recommendation that keeps up is predicted to meet the target: {told}."]
        why = "; ".join(dict.fromkeys(note for after in advice.after.values() for note in after.notes))
        return (
            [f"No recommendation is known to keep up with the load{f': {why}' if why else ''}."] if advice.after else []
        )
    r, after = advice[advice.choice], advice.after[advice.choice]
    assert r.deployment is not None
    what = changes(r.now, r.deployment)
    target = ""
    if advice.target_latency_s is not None:
        known = "is predicted" if after.latency_s is not None else "cannot be predicted"
        value = f" at {seconds(after.latency_s)}" if after.latency_s is not None else ""
        target = f"; its latency {known}{value}, the target is {seconds(advice.target_latency_s)}"
    sure = after.whole.high is not None and after.whole.high < 1
    fewest = "the fewest that keep up for sure" if sure else "the fewest that keep up, though not for sure"
    said = f"We recommend the {r.deployment.instances} instances of {r.policy} ({what or 'no change'}), {fewest}"
    return [f"{said}; the load of the job is then {percent_interval(after.whole)} of its capacity{target}."]


def html(advice: Advice) -> str:
    """Return sentences and tables as HTML; everything from data is escaped."""
    said = "".join(f"<li>{escape(s)}</li>" for s in advice.sentences)
    parts = [f"<ul>{said}</ul>"]
    for title, frame in (
        ("Operators", read_operators(advice)),
        ("Recommended instances", read_parallelism(advice)),
        ("Policies", read_policies(advice)),
    ):
        parts.append(f"<h4>{title}</h4>{html_table(frame, title, left=True)}")
    if advice.choice is not None:
        made = advice.settings()
        parts.append(f"<h4>What to change ({escape(advice.choice)})</h4><pre>{escape(str(made))}</pre>")
    return "".join(parts)


_NOT_SHOWN = ("reference", "code", "dropped", "vertices", "backlog_unmeasured")  # or elsewhere on the page


def write_page(advice: Advice, path: str | Path | None, *, title: str, overwrite: bool) -> Path:
    """Write one HTML file: the answer, the operators, the policies with their reasons, the settings to change."""
    import pandas as pd

    loads, recommended = advice.figures
    topology, seen = advice.history.topology, advice.evidence.pooled
    answer = [Section("The answer" if i == 0 else "", sentence) for i, sentence in enumerate(advice.sentences)]
    sections = [
        *answer,
        Section("The current deployment", figure=plots.topology(topology, seen)),
        Section("The operators", figure=loads),
        Section("", table=read_operators(advice)),
        Section("Recommendations", figure=recommended),
        Section("", table=read_policies(advice)),
        Section("", table=read_parallelism(advice)),
        Section("Reasons", "The reasons given by each policy.", table=read_reasons(advice)),
    ]
    sections += _settings(advice)
    if advice.problems:
        dropped = pd.DataFrame(list(advice.problems.items()), columns=["dropped while loading", "times"])
        sections.append(Section("Dropped readings", table=dropped))
    about = {k: v for k, v in advice.history.about.items() if k not in _NOT_SHOWN}
    about |= {"engine": advice.engine}
    if advice.target_latency_s is not None:
        about["latency target, s"] = advice.target_latency_s
    keys = [key for r in advice.recommendations for key in _keys(r.reference) if key in entries()]
    source = str(about.get("source", "")) or "a job"
    return written(
        sections,
        path,
        title=title or f"Advice for {source}",
        about=about,
        references=["dspkit", *keys],
        overwrite=overwrite,
    )


def _settings(advice: Advice) -> list[Section]:
    """Return the settings to change, unfolded for the choice and folded for the others."""
    made: list[Section] = []
    changing = [r for r in advice.recommendations if r.deployment is not None and r.deployment != r.now]
    for r in sorted(changing, key=lambda r: r.policy != advice.choice):
        text, said = str(advice.settings(r.policy)), f"{r.policy}: {r.says}."
        title, chosen = "" if made else "What to change", r.policy == advice.choice
        shown = f"<pre>{escape(text)}</pre>" if chosen else ""
        made.append(Section(title, said, html=shown, code="" if chosen else text))
    return made


def _keys(reference: object) -> tuple[str, ...]:
    return (reference,) if isinstance(reference, str) else tuple(reference) if isinstance(reference, tuple) else ()
