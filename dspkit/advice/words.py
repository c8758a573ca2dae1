"""The advice in sentences, and the notebook's view."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from ..history import changes
from ..report_tables import table
from . import tables
from .needs import seconds
from .tables import share

if TYPE_CHECKING:
    from .advice import Advice

_SURE, _LIKELY = 0.95, 0.8  # of redrawn recordings


def sentences(advice: Advice) -> tuple[str, ...]:
    said = [*_bottleneck(advice), *policies(advice), *_choice(advice), f"This rests on {advice.evidence.sentence}"]
    if advice.needs.blocks < 2:
        said.append("That is not enough to say how sure it is: record five windows or more under one load.")
    if once := _seen_once(advice):
        said.append(f"{once} ran at one parallelism only: more instances are taken to do as much each as these did.")
    if advice.unqueued:
        everywhere = len(advice.unqueued) == len(advice.needs.parallelism)
        where = "" if everywhere else f" at {', '.join(advice.unqueued)}"
        said.append(f"Nobody measured how many records wait{where}: policies are told none.")
    if advice.outlook.note:
        said.append(advice.outlook.note)
    if advice.problems:
        dropped = "; ".join(f"{n} x {why}" for why, n in advice.problems.items())
        said.append(f"Dropped while loading: {dropped}.")
    return tuple(said)


def _seen_once(advice: Advice) -> str:
    """Operators of which nothing shows how they scale."""
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
        said.append(f"Not known: how many {missing} would need, for want of a true rate or of what reaches it.")
    if needs.unmetered:
        silent = ", ".join(needs.unmetered)
        said.append(f"Nobody measures how busy {silent} is: taken to keep up, and left as it is.")
    if told is None:
        return [
            "Nothing comes in, so nobody is the bottleneck." if advice.idle else "The bottleneck is not known.",
            *said,
        ]
    name, often = told
    load, whole = needs.load(name), needs.whole()
    how = "" if often is None else ", for sure" if often >= _SURE else ", likely" if often >= _LIKELY else ", perhaps"
    drawn = "" if often is None else f" (in {often:.0%} of redrawn recordings)"
    over = (whole.value if whole.value is not None else load.value or 0.0) >= 1
    if needs.law == "sequential":
        first = f"{name} takes most of the time{how}{drawn}: {share(load)}."
        room = f"All together take {share(whole)} of the time there is." if whole.value is not None else ""
        return [" ".join(filter(None, (first, room))), *said]
    if over:
        return [f"{name} is the bottleneck{how}{drawn}: it is asked for {share(load)} of what it can do.", *said]
    among = " of those that are known" if needs.unknown else ""
    spare = f" The job could take {1 / load.value:.3g} times this load." if load.value and not needs.unknown else ""
    first = f"Nobody{among} is overloaded; {name} would be the first{how}{drawn}, at {share(load)} of what it can do."
    return [first + spare, *said]


def policies(advice: Advice) -> list[str]:
    """Whether they agree, and who cannot say."""
    told = [r for r in advice.recommendations if r.deployment is not None]
    mute = [r.policy for r in advice.recommendations if r.deployment is None]
    said = [] if told else ["No policy could say."]
    if told:
        frame = advice.parallelism
        apart = frame[frame["least"] != frame["most"]]
        if len(told) == 1:
            said.append(f"{told[0].policy} recommends: {told[0].says}.")
        elif not len(apart):
            said.append(f"All {len(told)} policies that can say recommend the same: {told[0].says}.")
        else:
            widest = apart.loc[(apart["most"] - apart["least"]).idxmax()]
            agreed = "" if len(apart) == len(frame) else f" on {len(apart)} of {len(frame)} operators"
            said.append(f"Policies disagree{agreed}, most about {widest['operator']}: {widest['who']}.")
    if mute:
        said.append(f"Cannot say: {', '.join(mute)} (the table has what they lack).")
    return said


def _choice(advice: Advice) -> list[str]:
    if advice.idle:
        return ["What policies say of an idle job is the least they know: record it at work."]
    if advice.choice is None:
        late = [a.latency_s for a in advice.after.values() if a.keeps_up and a.latency_s is not None]
        if late and advice.target_latency is not None:
            told = f"the least is {seconds(min(late))}, the target {seconds(advice.target_latency)}"
            return [f"No recommendation that keeps up is predicted to meet the target: {told}."]
        why = "; ".join(dict.fromkeys(note for after in advice.after.values() for note in after.notes))
        return (
            [f"No recommendation is known to keep up with the load{f': {why}' if why else ''}."] if advice.after else []
        )
    r, after = advice[advice.choice], advice.after[advice.choice]
    assert r.deployment is not None
    what = changes(r.now, r.deployment)
    target = ""
    if advice.target_latency is not None:
        known = "is predicted" if after.latency_s is not None else "cannot be predicted"
        value = f" at {seconds(after.latency_s)}" if after.latency_s is not None else ""
        target = f"; its latency {known}{value}, the target is {seconds(advice.target_latency)}"
    sure = after.whole.high is not None and after.whole.high < 1
    fewest = "the fewest that surely keep up" if sure else "the fewest that keep up, though not for sure"
    said = f"Advised: {r.policy}'s {r.deployment.instances} instances ({what or 'what runs'}), {fewest}"
    return [f"{said}; the job is then asked for {share(after.whole)} of what it can do{target}."]


def _left(table: str) -> str:
    """Words begin on the left: JupyterLab puts all cells to the right."""
    left = ' style="text-align: left"'
    for tag in ('<th scope="col">', "<td data-label", '<td class="long" data-label'):
        table = table.replace(tag, tag.replace("<td", f"<td{left}").replace("<th", f"<th{left}"))
    return table


def html(advice: Advice) -> str:
    """Sentences and tables; all that comes from data is escaped."""
    said = "".join(f"<li>{escape(s)}</li>" for s in advice.sentences)
    parts = [f"<ul>{said}</ul>"]
    for title, frame in (
        ("Operators", tables.read_operators(advice)),
        ("Recommended instances", tables.read_parallelism(advice)),
        ("Policies", tables.read_policies(advice)),
    ):
        parts.append(f"<h4>{title}</h4>{_left(table(frame, title))}")
    if advice.choice is not None:
        made = advice.settings()
        parts.append(f"<h4>What to change ({escape(advice.choice)})</h4><pre>{escape(str(made))}</pre>")
    return "".join(parts)
