"""Formulas: sympy writes LaTeX of random expressions, an XML parser reads what we make of it."""

import re
import xml.etree.ElementTree as ET

import pytest
import sympy
from hypothesis import given
from hypothesis import strategies as st

from dspkit.report.html import clean, markdown, mathml

x, y, a1, rho = sympy.symbols("x y a_1 rho")
leaves = st.sampled_from([x, y, a1, rho, sympy.Integer(2), sympy.Rational(1, 3), sympy.oo])
expressions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map(lambda p: sympy.Add(*p, evaluate=False)),
        st.tuples(inner, inner).map(lambda p: sympy.Mul(*p, evaluate=False)),
        st.tuples(inner, inner).map(lambda p: sympy.Pow(*p, evaluate=False)),
        inner.map(lambda e: sympy.log(e, evaluate=False)),
        inner.map(lambda e: sympy.sqrt(e, evaluate=False)),
        inner.map(lambda e: sympy.Max(e, x, evaluate=False)),
        inner.map(lambda e: sympy.Sum(sympy.Mul(rho, e, evaluate=False), (y, 1, a1))),
    ),
    max_leaves=5,
)


def words(text):
    return "".join(ET.fromstring(text).itertext())


@given(expressions)
def test_what_sympy_writes_is_read_and_nothing_is_lost(expression):
    latex = sympy.latex(expression)
    made = mathml(latex)
    assert made is not None, latex
    tree = ET.fromstring(made)  # well-formed
    for command, tags in ((r"\frac", ("mfrac",)), (r"\sqrt", ("msqrt", "mroot"))):
        assert sum(len(list(tree.iter(tag))) for tag in tags) == latex.count(command), latex
    shown, bare = words(made).replace("max", ""), re.sub(r"\\[a-zA-Z]+", "", latex)
    for letter, count in (("x", bare.count("x")), ("y", bare.count("y")), ("ρ", latex.count(r"\rho"))):
        assert shown.count(letter) == count, latex


@given(st.text(alphabet="ab1_^{}\\'&<> frcsqt", max_size=30), st.booleans())
def test_any_text_gives_a_formula_or_none(text, display):
    made = mathml(text, display=display)
    if made is not None:
        ET.fromstring(made)


@pytest.mark.parametrize(
    ("latex", "shown"),
    [
        (r"k'_i/k_i", "k" + "i" + "′" + "/ki"),
        (r"\alpha\min(1, l_t/l_r)+(1-\alpha)\frac1N\sum_i k_i", "αmin(1,lt/lr)+(1−α)1N∑iki"),
        (r"\begin{cases} 1 & x>0 \\ 0 & \text{else} \end{cases}", "{1x>00else"),
        (r"\mathcal V(v)\,t_{s,v}", "𝒱(v)ts,v"),
        (r"\left[ 0, 1 \right.", "[0,1"),
        (r"\mathbb R \mathfrak C \mathbf a", "ℝℭ𝐚"),
    ],
)
def test_signs_come_in_their_order(latex, shown):
    assert words(mathml(latex)) == shown


UNKNOWN = ["", "x_1_2", "{x", "x}", r"\frac{1}", r"\foo", r"\begin{table}", "a $ b", "a & b", r"\text{\x}", "x_"]


@pytest.mark.parametrize("latex", UNKNOWN)
def test_what_is_not_known_is_left_as_it_is(latex):
    assert mathml(latex) is None


def test_a_formula_carries_no_link_and_no_markup_of_its_own():
    made = mathml(r"\href{javascript:alert(1)}{x} + \text{<b onclick='x()'>}")
    assert "href" not in made
    assert "<b" not in made
    assert words(made).endswith("<b\N{NO-BREAK SPACE}onclick='x()'>")


def test_formulas_in_prose_survive_cleaning_and_scripts_do_not():
    html = markdown(r"Let $x_1 < \text{<script>alert(1)</script>}$ be. $\unknown{1}$")
    assert "<msub><mi>x</mi><mn>1</mn></msub><mo>&lt;</mo>" in html
    assert "<script" not in html
    assert r'<code class="math">\unknown{1}</code>' in html
    assert clean('<math><mi onclick="x()">a</mi><script>1</script></math>') == "<math><mi>a</mi></math>"
