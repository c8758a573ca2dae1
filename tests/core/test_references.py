"""Citations resolve, and a .bib file that is wrong says where."""

import re
from types import SimpleNamespace

import pytest

import dspkit
from dspkit.core import FileError, NotFoundError, references
from dspkit.core.references import Citation, cite, entries, parse_bibtex, resolve


def test_every_entry_has_author_title_year_and_reads_back():
    assert len(entries()) >= 10
    for key, entry in entries().items():
        assert entry.key == key
        assert all(entry.fields[f] for f in ("author", "title", "year")), key
        assert re.fullmatch(r"(19|20)\d\d", entry.fields["year"]), key
        assert dict(parse_bibtex(entry.bibtex)[key].fields) == dict(entry.fields)
        assert not re.search(r"[{}$]|\s\s", entry.line), entry.line


def test_the_five_systems_carry_their_printed_titles():
    titles = {k: e.fields["title"].replace("{", "").replace("}", "") for k, e in entries().items()}
    assert titles["elysium"] == "Elastic Symbiotic Scaling of Operators and Resources in Stream Processing Systems"
    assert titles["fission"].startswith("Self-adaptive processing graph with operator fission")
    assert titles["stela"] == "Stela: Enabling Stream Processing Systems to Scale-in and Scale-out On-demand"
    assert titles["nardelli"].startswith("QoS-aware Deployment and Adaptation of Data Stream Processing Applications")
    assert titles["autrascale"].startswith("AuTraScale: An Automated and Transfer Learning Solution")
    assert titles["kalavri2018ds2"].startswith("Three steps is all you need")


def test_without_argument_dspkit_and_the_five_systems():
    assert [e.key for e in resolve()] == list(references.MAIN)
    assert f"version = {{{dspkit.__version__}}}" in cite()
    assert cite().count("\n\n@") == 5


def test_by_key_class_instance_and_several():
    class Policy:
        reference = ("kalavri2018ds2", "stela")

    assert cite("stela").startswith("@inproceedings{stela,")
    assert cite(Policy) == cite(Policy()) == cite(["kalavri2018ds2", Policy, "stela"])
    assert cite(SimpleNamespace(reference="fission")) == cite("fission")
    assert cite(SimpleNamespace(reference=())) == ""


def test_a_citation_prints_itself():
    assert isinstance(cite("stela"), Citation)
    assert repr(cite("stela")) == str(cite("stela"))
    from IPython.lib.pretty import pretty  # what a notebook shows

    assert pretty(cite("stela")).startswith("@inproceedings{stela,\n")


def test_dspkit_offers_cite():
    assert dspkit.cite is cite


@pytest.mark.parametrize(("wrong", "near"), [("Stella", "stela"), ("ds2", "kalavri2018ds2"), ("fissions", "fission")])
def test_an_unknown_key_names_the_near_ones(wrong, near):
    with pytest.raises(NotFoundError, match=f"did you mean.*{near!r}"):
        cite(wrong)


def test_an_unknown_key_far_from_all_lists_them_and_a_thing_without_reference_is_refused():
    with pytest.raises(NotFoundError, match=r"autrascale.*references.bib"):
        cite("zzzz")
    with pytest.raises(NotFoundError, match=r"an? int without a `reference`"):
        cite(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("@book{a, title = {T}, year = {1999}}", "author in a"),
        ("% a\n\n@book{a, author = {A}, title = {T}, year = }", "line 3: field value expected"),
        ("@book{a, author = {A}, year = {1999}, title = {T {x}\n", "line 1: premature end of file"),
        ("@book{a, author = {A}, title = {T {x}, year = {1999}}", "line 1"),
        ("@book{a, author = {A} title = {T}, year = {1}}", "line 1: '}' expected"),
        ("@book{a, author = {A}, author = {B}, title = {T}, year = {1}}", "key a has a duplicate author field"),
        ("@book{a, author={A}, title={T}, year={1}}\n@book{a, author={A}, title={T}, year={1}}", "repeated.*: a"),
        ("@book{a, author = {A}, title = {T}, year = {1}", "premature end of file"),
    ],
)
def test_a_wrong_bib_file_says_where(text, message):
    with pytest.raises(FileError, match=message):
        parse_bibtex(text)


def test_comments_and_space_between_entries_are_skipped():
    assert list(parse_bibtex("% a, {b}\n\n @book{k, author={A}, title={T},\n year={1}}\n % end")) == ["k"]


def test_every_policy_names_works_that_exist():
    from dspkit import policies

    for name, policy in policies.available().items():
        assert all(e.key in entries() for e in resolve(getattr(policy, "reference", ()))), name


def test_every_application_names_works_that_exist():
    from dspkit import apps

    for name, make in apps.available().items():
        assert resolve(make()), name
