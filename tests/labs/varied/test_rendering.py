"""All pieces of a text are replaced at once, even if a comment breaks them; the plain text does not change."""

from __future__ import annotations

import pytest

from minorm.labs import cells
from minorm.labs.varied import rendering
from minorm.labs.varied.choices import PLAIN, Variants, kinds, numbers

TEXT = '''\
# %% [markdown]
# # Lab 99
#
# k is the mean of the first
# four values, and (N, C) the axes; x[:4], not x[:40]. Forty-four stays.

# %%
check = checker(99, globals())

# %%
def f(x, eps=1e-5):
    """The first four values."""
    return x[:4], one, two
'''
V = Variants(
    "lab99_example",
    eps=numbers("eps, if not given", ("1e-5", "1e-4"), "eps={}"),
    first=numbers("how many", ("4", "6"), "the first {word} values", "x[:{}]", "first {word} values"),
    swapped=kinds("", {"a": ("one", "two"), "b": ("two", "one")}),
)


def test_a_variant_says_its_values_and_its_name() -> None:
    variant = V.of(2027)
    text = rendering.rendered(TEXT, V, variant)
    assert "the mean of the first six values, and (N, C) the axes; x[:6], not x[:40]. Forty-four stays." in text
    assert 'eps=1e-4):\n    """The first six values."""\n    return x[:6], two, one' in text
    found = cells.read_percent(text)
    assert [cell.markdown for cell in found] == [True, False, True, False, False]
    assert found[1].text == "check = checker(99, globals())"
    assert found[3].text == (
        f'VARIANT = "{variant.code}"  # the checks read this line: leave it as it is\n'
        "EPS = 1e-4  # eps, if not given\nFIRST = 6  # how many"
    )
    assert rendering.said(found) == variant.code


def test_the_plain_lab_is_the_text_itself() -> None:
    assert rendering.rendered(TEXT, V, PLAIN) == TEXT
    assert rendering.said(cells.read_percent(TEXT)) == ""
    assert rendering.with_pieces("the first four values", V, PLAIN) == "the first four values"


def test_what_the_text_does_not_say_any_more_is_missing() -> None:
    assert rendering.missing(TEXT, V) == []
    assert rendering.missing(TEXT.replace("eps=1e-5", "eps=1e-50"), V) == ["eps=1e-5"]
    with pytest.raises(ValueError, match="no line begins with `check = checker"):
        rendering.rendered("x = 1\n", V, V.of(1))


def test_the_last_word_on_the_variant_is_the_files_code_and_not_a_comment() -> None:
    text = "# %% [markdown]\n# VARIANT = \"ABC\"\n\n# %%\n# VARIANT = 'ABC'\nVARIANT = 'XYZ'\n"
    assert rendering.said(cells.read_percent(text)) == "XYZ"
