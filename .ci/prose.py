"""The prose linter of `make lint`: phrases that the house does not use, each with the wording to use instead.

It reads docstrings, comments, the sentences of errors, Markdown pages and the prose of notebooks. Each finding is one
line, `file:line: found -> suggestion`. Findings in old code are counted per package in prose.json; a count must equal
that of the file, and can only be lowered.

    python .ci/prose.py             compare the counts with prose.json; show the findings of packages that have more
    python .ci/prose.py PATH ...    show all findings in these files or folders
    python .ci/prose.py --update    write the counts, unless there are more findings than before

A line with `prose: allow` in a comment is not checked, nor is a string whose last line ends with such a comment. Code
between backticks is never checked. This script needs only the standard library.
"""

from __future__ import annotations

import ast
import io
import json
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
BASELINE = Path(__file__).with_suffix(".json")
FOLDERS = ("dspkit", "reproduction", "benchmarks", "tests", ".ci", "data", "docs", "notebooks", "binder")
ALLOW = "prose: allow"
ALL_STRINGS = {"words.py"}  # modules whose strings are sentences for users

_COUNT = r"(?:a|an|one|two|three|four|five|six|seven|eight|nine|ten|twenty|hundred|thousand|some|many|few|\d[\d,.]*)"
_NOUN = (
    r"(?:rows?|lines?|files?|times|steps?|records?|numbers?|words?|frames?|messages?|points?|samples?|[kMG]B|bytes|"
    r"ms|s|ns|µs|instances?|tasks?|requests?|tweets?|flights?|visits?|branches|runs?|windows?|decisions?|tokens?|"
    r"clicks?|events?|operators?|pages?|seconds?|minutes?|cores?|calls?|tuples?|sliders?|folders?|stages?|sentences?)"
)
_UNIT = (
    r"(?:step|row|window|second|minute|hour|day|week|line|instance|operator|record|node|machine|batch|epoch|run|case|"
    r"policy|claim|edge|frame|tick|visit|task|page|decision|paper|module|concern|application|core|load|seed|GB)"
)
_THING = (
    r"(?:node|machine|operator|instance|policy|queue|source|sink|process|worker|task|thread|server|stream|record|job|"
    r"engine|receiver|sender|executor|backend|simulator|kernel|solver|view)"
)


class Rule(NamedTuple):
    """One phrase that the house does not use. A space in its pattern is any white space within a paragraph."""

    name: str
    pattern: str
    instead: str
    docstring: bool = False  # looked for at the beginning of docstrings only

    @property
    def regex(self) -> re.Pattern[str]:
        pattern = self.pattern.replace(" ", r"(?:[^\S\n]+|[^\S\n]*\n[^\S\n]*)")
        return re.compile(pattern if self.docstring else rf"(?<![\w-])(?:{pattern})(?![\w-])", re.IGNORECASE)


RULES = (
    Rule(
        "free relative",
        r"\s*(?:what|how|where|which|who|whom|whose|whether)\b(?! to )",
        "begin with a noun phrase or a verb: 'Return ...', 'One row per step'",
        docstring=True,
    ),
    Rule("rate", rf"{_COUNT} (?:\w+ )?{_NOUN} (?:a|an) {_UNIT}(?! \w+ing)", "'per': one row per step"),
    Rule("reckon", r"reckon\w*", "compute, estimate, count"),
    Rule("by lot", r"by lot", "at random"),
    Rule("mend", r"mend(?:s|ed|ing)?", "fix, repair"),
    Rule("dear", r"dear(?:er|est)?", "expensive, costly"),
    Rule("that is none", r"(?:that|which|who) (?:is|are|was|were) none", "invalid"),
    Rule("held back", r"(?:held|holds?|holding) (?:\w+ )?back|kept back", "back-pressured, blocked; withheld"),
    Rule("who", rf"{_THING}s? whom?", "'that' or 'which' for things"),
    Rule("nobody", r"(?:nobody|everybody|somebody)(?:'s)?|whoever", "name the operator, instance or person"),
    Rule("under way", r"under way", "in flight, in progress"),
    Rule("stand still", r"(?:stands?|stood|standing) still|standstill", "is paused"),
    Rule("work off", r"(?:works?|worked|working) (?:\w+ )?off", "drain, process the backlog"),
    Rule("nonsense", r"nonsense", "invalid values"),
    Rule("anew", r"anew", "again, from scratch"),
    Rule("steer", r"steer(?:s|ed|ing)?", "control"),
    Rule("go on", r"(?:go|goes|went|gone|going) on(?! (?:with )?to)", "continue"),
    Rule("told", r"told|tells(?! (?:us|you))", "shows, reports, states; is configured"),
    Rule("what came", r"(?:what|who) (?:came|comes)", "input, arrivals, the received value"),
    Rule("to be had", r"to be had", "available"),
    Rule("for want of", r"for want of", "because ... is missing"),
    Rule("hold the mouse", r"hold the mouse (?:over)?", "hover over"),
    Rule("sit", r"sits?|sat", "runs on, is placed on"),
    Rule("goes by", r"(?:goes|go|went) by", "uses, follows"),
    Rule("dealt", r"dealt|deal(?:s|ing)? (?:\w+ )?(?:out|anew)", "assigned, distributed"),
    Rule("belong into", r"belongs? into", "belong in"),
    Rule("hang on", r"(?:hangs?|hung) on", "depend on"),
    Rule("twice running", r"(?:twice|times) running", "twice in a row"),
    Rule("err", r"errs?", "has an error of, is wrong"),
    Rule("at hand", r"at hand", "available"),
    Rule(
        "play",
        r"(?:plays?|played|playing) (?:a|the|every|all|each) (?:runs?|loads?|windows?|hours?|days?|polic(?:y|ies))",
        "run, simulate, replay",
    ),
    Rule("come and go", r"(?:comes?|came) (?:and|or) (?:go|goes|went)", "added and removed; appears or disappears"),
    Rule("stays as it is", r"stays? as (?:it is|they are)", "remains unchanged"),
    Rule("Javas", r"Javas", "JVMs, Python processes"),
    Rule(
        "German order",
        r"(?:advised|served|shown|meant|counted|refused|wanted|allowed) (?:is|are) (?:the|a|an|what|who|all|every)",
        "subject first: 'We recommend the ...'",
    ),
    Rule(
        "American spelling",
        r"(?:normali|optimi|utili|minimi|maximi|summari|initiali|seriali|stabili|prioriti|recogni|organi|characteri|"
        r"synchroni|generali|visuali|equali|emphasi|paralleli|vectori|speciali|standardi|penali)z\w+|analyz\w+|"
        r"behaviors?|colou?red|colors?|neighbors?|neighboring|centers?|centered|favors?|favorite|gray|"
        r"modeling|modeled|labeled|labeling|canceled|canceling|traveled|catalogs?",
        "British spelling: normalise, behaviour, colour, neighbour, centre, modelled",
    ),
)


class Chunk(NamedTuple):
    """A piece of prose with the number of its first line."""

    line: int
    text: str
    docstring: bool = False


class Finding(NamedTuple):
    """A phrase at a place, with the rule that names it."""

    path: Path
    line: int
    found: str
    rule: Rule

    def __str__(self) -> str:
        where = self.path.relative_to(ROOT) if self.path.is_relative_to(ROOT) else self.path
        return f"{where}:{self.line}: {' '.join(self.found.split())} -> {self.rule.instead}"


def findings(path: Path) -> list[Finding]:
    """Return all findings in one file, in the order of its lines."""
    text = path.read_text(encoding="utf-8")
    chunks = {".py": _python, ".ipynb": _notebook, ".md": _markdown}[path.suffix](path, text)
    lines = text.splitlines()
    found = []
    for chunk in chunks:
        prose = _without_code(chunk.text)
        for rule in RULES:
            if rule.docstring and not chunk.docstring:
                continue
            for match in [rule.regex.match(prose)] if rule.docstring else rule.regex.finditer(prose):
                if match and match[0].strip():
                    line = chunk.line + prose[: match.end()].count("\n")
                    if not any(ALLOW in each for each in lines[line - 1 : line]):
                        found.append(Finding(path, line, match[0], rule))
    return sorted(found, key=lambda each: each.line)


def _without_code(text: str) -> str:
    """Return the text with code blanked out: spans between backticks, doctests, formulas, addresses, placeholders."""
    for pattern in (
        r"``.+?``|`[^`\n]+`",
        r"^\s*(?:>>>|\.\.\.).*$",
        r"\$[^$\n]+\$",
        r"\]\([^)\n]+\)|https?://\S+|\{\{[^}]+\}\}",
    ):
        text = re.sub(pattern, lambda m: "\u25cb" * len(m[0]), text, flags=re.M)
    return text


def _python(path: Path, text: str) -> Iterator[Chunk]:
    lines = text.splitlines()
    tree = ast.parse(text)
    seen = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                seen.add(first.value)
                if isinstance(first.value.value, str) and ALLOW not in lines[first.end_lineno - 1]:
                    yield Chunk(first.lineno, first.value.value, docstring=True)
    wanted = tree.body if path.name in ALL_STRINGS else [n for n in ast.walk(tree) if isinstance(n, ast.Raise)]
    for outer in wanted:
        for node in ast.walk(outer):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in seen:
                seen.add(node)
                if ALLOW not in lines[node.end_lineno - 1]:
                    yield Chunk(node.lineno, node.value.replace("\n", " "))
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and ALLOW not in token.string:
            yield Chunk(token.start[0], token.string.lstrip("# "))


def _markdown(path: Path, text: str) -> Iterator[Chunk]:
    """Return the page with fenced code blanked out."""
    yield Chunk(1, _without_fences(text))


def _without_fences(text: str) -> str:
    return re.sub(r"^ *```.*?^ *```", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)


def _notebook(path: Path, text: str) -> Iterator[Chunk]:
    """Return the prose cells, whose lines stand one by one in the file."""
    lines = [line.strip().rstrip(",") for line in text.splitlines()]
    at = 0
    for cell in json.loads(text)["cells"]:
        if not cell["source"]:
            continue
        at = lines.index(json.dumps(cell["source"][0], ensure_ascii=False), at)
        if cell["cell_type"] == "markdown":
            yield Chunk(at + 1, _without_fences("".join(cell["source"])))
        at += len(cell["source"])


def package(path: Path) -> str:
    """Return the name under which findings in a file are counted: its package, or docs, or notebooks."""
    parts = path.relative_to(ROOT).parts
    if path.suffix == ".md":
        return "docs"
    if parts[0] in ("dspkit", "reproduction") and len(parts) > 2:
        return f"{parts[0]}/{parts[1]}"
    return parts[0] if len(parts) > 1 else "root"


def files(places: list[Path]) -> list[Path]:
    """Return every file with prose in these files and folders, without caches and hidden folders."""
    found: set[Path] = set()
    for place in places:
        for path in [place] if place.is_file() else place.rglob("*"):
            hidden = [part for part in path.relative_to(place).parts if part[0] in "._" and part[:2] != "__"]
            if path.suffix in (".py", ".md", ".ipynb") and path.is_file() and not (hidden and path.suffix != ".py"):
                found.add(path)
    return sorted(found)


def house() -> list[Path]:
    """Return the files that `make lint` reads: the code, the pages and the notebooks of this repository."""
    top = [path for path in ROOT.glob("*") if path.suffix in (".py", ".md") and path.is_file()]
    return files([*top, *[ROOT / name for name in FOLDERS if (ROOT / name).is_dir()]])


def compare(counts: dict[str, int], baseline: dict[str, int]) -> tuple[list[str], list[str]]:
    """Return the packages with more findings than the baseline has, and those with fewer."""
    names = sorted({*counts, *baseline})
    more = [name for name in names if counts.get(name, 0) > baseline.get(name, 0)]
    return more, [name for name in names if counts.get(name, 0) < baseline.get(name, 0)]


def main(args: list[str]) -> int:
    """Run the linter; the result is an exit code."""
    if args and args[0] != "--update":
        found = [each for path in files([Path(arg).resolve() for arg in args]) for each in findings(path)]
        print(*found, sep="\n", end="\n" if found else "")
        return bool(found)
    found = [each for path in house() for each in findings(path)]
    counts = dict(sorted(Counter(package(each.path) for each in found).items()))
    baseline = json.loads(BASELINE.read_text(encoding="utf-8")) if BASELINE.exists() else None
    if args:
        if baseline is not None and sum(counts.values()) > sum(baseline.values()):
            print(f"prose: {sum(counts.values())} findings, {sum(baseline.values())} before: a count can only shrink")
            return 1
        BASELINE.write_text(json.dumps(counts, indent=1) + "\n", encoding="utf-8")
        print(f"prose: {sum(counts.values())} findings in old prose written to {BASELINE.relative_to(ROOT)}")
        return 0
    more, fewer = compare(counts, baseline or {})
    print(*[each for each in found if package(each.path) in more], sep="\n", end="\n" if more else "")
    for name in more:
        print(f"prose: {name} has {counts[name]} findings, expected at most {(baseline or {}).get(name, 0)}; see above")
    for name in fewer:
        print(f"prose: {name} has {counts.get(name, 0)} findings, {(baseline or {})[name]} in prose.json;", end=" ")
        print("python .ci/prose.py --update")
    return bool(more or fewer)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
