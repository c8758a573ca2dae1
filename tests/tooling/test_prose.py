"""The prose linter: each rule fires on a bad sentence and not on a good one; counts of findings can only shrink."""

import json

import pytest

import prose

SENTENCES = {
    "free relative": ("How long a run takes.", "Return the duration of a run. It is what a user pays for."),
    "rate": ("One row a step, and 600 lines a second.", "One row per step. The second took a minute."),
    "reckon": ("It reckons with 5 %.", "It assumes 5 %."),
    "by lot": ("Choices by lot.", "Random choices, one by one."),
    "mend": ("Mend the test.", "We recommend the test."),
    "dear": ("This is safe, and dear.", "This is safe, and expensive."),
    "that is none": ("Rates that are none.", "There is none, and that is one."),
    "held back": ("The source is held back.", "The source is blocked, and backs off."),
    "who": ("A node who fails.", "A person who asks. A node that fails, and those whose queue is full."),
    "nobody": ("Nobody waits for everybody.", "No operator waits."),
    "under way": ("Records under way.", "Records in flight."),
    "stand still": ("It stood still for 5 s.", "It was paused for 5 s."),
    "work off": ("The lag is worked off.", "The worker turns itself off."),
    "nonsense": ("Text and other nonsense.", "Text and other invalid values."),
    "anew": ("Start anew.", "Start a new run."),
    "steer": ("DS2 steers the job.", "DS2 controls the job."),
    "go on": ("The run goes on.", "The run continues. Then go on to the next page."),
    "told": ("As the log tells.", "As the log shows. The optimiser has an ask-and-tell interface."),
    "what came": ("It counts what came.", "It counts arrivals and what remains."),
    "to be had": ("Traces are to be had there.", "Traces are available."),
    "for want of": ("None, for want of a rate.", "None, because the rate is missing."),
    "hold the mouse": ("Hold the mouse over it.", "Hover over it."),
    "sit": ("Instances sit beside others.", "Instances share a site."),
    "goes by": ("The rule goes by arrivals.", "The rule uses arrivals, as time passes by."),
    "dealt": ("Instances are dealt out.", "A great deal of instances is assigned."),
    "belong into": ("It belongs into docs.", "It belongs in docs."),
    "hang on": ("Facts hang on that.", "Facts depend on that."),
    "twice running": ("Above it twice running.", "Above it twice in a row."),
    "err": ("It errs by 3 %.", "It has an error of 3 %."),
    "at hand": ("With workers at hand.", "With workers available on one hand."),
    "play": ("Each process plays a run.", "Each process simulates a run. It plays a role."),
    "come and go": ("Workers come and go.", "Workers are added and removed."),
    "stays as it is": ("It stays as it is.", "It remains unchanged."),
    "Javas": ("Four Javas.", "Four JVMs."),
    "German order": ("Advised is the smallest.", "We recommend the smallest. It is allowed to run."),
    "American spelling": ("Normalize the color.", "Normalise the colour, in size and prize."),
}


def found(tmp_path, text, name="page.md"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return [each.rule.name for each in prose.findings(path)]


def test_every_rule_has_its_sentences():
    assert set(SENTENCES) == {rule.name for rule in prose.RULES}


@pytest.mark.parametrize("name", SENTENCES)
def test_a_rule_fires_on_a_bad_sentence_and_not_on_a_good_one(tmp_path, name):
    bad, good = (f'"""{sentence}"""\n' for sentence in SENTENCES[name])
    assert set(found(tmp_path, bad, "bad.py")) == {name}
    assert found(tmp_path, good, "good.py") == []


def test_docstrings_comments_and_errors_are_read_and_other_strings_are_not(tmp_path):
    code = (
        '"""Who runs."""\n\n\nclass Job:\n    """What runs."""\n\n    def ends(self):\n        """Whether it ends."""\n'
        '        # nobody waits\n        name = "nobody"\n        raise ValueError(f"{name} anew")\n'
    )
    assert found(tmp_path, code, "job.py") == [*["free relative"] * 3, "nobody", "anew"]
    assert found(tmp_path, 'SAID = "nobody"\n', "words.py") == ["nobody"]  # sentences for users


def test_a_finding_names_file_line_and_wording(tmp_path):
    path = tmp_path / "page.md"
    path.write_text("# Title\n\nIt is\nheld\nback.\n")
    (finding,) = prose.findings(path)
    shown = path.relative_to(prose.ROOT) if path.is_relative_to(prose.ROOT) else path  # make keeps tmp_path in here
    assert str(finding) == f"{shown}:5: held back -> back-pressured, blocked; withheld"


def test_phrases_end_at_paragraphs(tmp_path):
    assert found(tmp_path, "## In one run\n\nA policy learns.\n") == []


@pytest.mark.parametrize("text", ["`nobody`", "```python\nx = nobody\n```\n", "$anew$", "[x](nobody.md)"])
def test_code_in_pages_is_not_read(tmp_path, text):
    assert found(tmp_path, text) == []


def test_a_quotation_can_be_allowed(tmp_path):
    assert found(tmp_path, "It says nobody. <!-- prose: allow -->\n") == []
    assert found(tmp_path, "# says nobody  prose: allow\n", "a.py") == []
    assert found(tmp_path, '"""What it says.\n\nNobody.\n"""  # prose: allow\n', "b.py") == []
    assert found(tmp_path, "# says nobody\n", "c.py") == ["nobody"]


def test_prose_of_notebooks_has_its_line_in_the_file(tmp_path):
    cells = [
        {"cell_type": "code", "source": ["# nobody\n", "x = 1"]},
        {"cell_type": "markdown", "source": ["# nobody\n", "x"]},
    ]
    path = tmp_path / "a.ipynb"
    path.write_text(json.dumps({"cells": cells}, indent=1))
    (finding,) = prose.findings(path)
    assert (finding.line, path.read_text().splitlines()[finding.line - 1].strip()) == (13, '"# nobody\\n",')


def test_counts_are_compared_in_both_directions():
    assert prose.compare({"a": 2, "b": 1}, {"a": 1, "b": 2, "c": 1}) == (["a"], ["b", "c"])
    assert prose.compare({"a": 1}, {"a": 1}) == ([], [])


@pytest.fixture
def house(tmp_path, monkeypatch):
    (tmp_path / "docs").mkdir()
    page = tmp_path / "docs" / "page.md"
    page.write_text("Nobody. Anew.\n")
    monkeypatch.setattr(prose, "ROOT", tmp_path)
    monkeypatch.setattr(prose, "BASELINE", tmp_path / "prose.json")
    return page


def test_a_count_can_shrink_and_not_grow(house, capsys):
    assert (prose.main(["--update"]), json.loads(prose.BASELINE.read_text())) == (0, {"docs": 2})
    assert prose.main([]) == 0
    house.write_text("Nobody. Anew. Anew.\n")
    assert prose.main([]) == 1
    assert "docs/page.md:1: Anew" in capsys.readouterr().out
    assert (prose.main(["--update"]), json.loads(prose.BASELINE.read_text())) == (1, {"docs": 2})
    house.write_text("Nobody.\n")
    assert prose.main([]) == 1
    assert "--update" in capsys.readouterr().out
    assert (prose.main(["--update"]), prose.main([])) == (0, 0)


def test_this_repository_has_as_many_findings_as_it_says(capsys):
    """After an improvement: python .ci/prose.py --update"""
    assert prose.main([]) == 0, capsys.readouterr().out


def test_pages_and_notebooks_have_none():
    assert {"docs", "notebooks", ".ci", "root"}.isdisjoint(json.loads(prose.BASELINE.read_text()))
