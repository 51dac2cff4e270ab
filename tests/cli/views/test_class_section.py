"""The section on classes: every class in a row, and those that need a word have one."""

from __future__ import annotations

import re

import numpy as np

from minorm.cli.views import class_section
from minorm.training import classification_report


def test_every_class_has_a_row_and_a_remark_where_it_needs_one() -> None:
    scores = np.array([[0.9, 0.1, 0.0], [0.6, 0.4, 0.0], [0.8, 0.2, 0.0], [0.7, 0.3, 0.0]])
    text = class_section.html(classification_report([0, 0, 0, 1], scores, target_names=["<cat>", "dog", "cow"], k=2))
    rows = [re.findall("<td[^>]*>([^<]*)", row) for row in re.findall("<tr>(.*?)</tr>", text)][1:]
    assert rows == [
        ["&lt;cat&gt;", "", "0.750", "1.000", "0.857", "0.667", "3"],
        ["dog", "never predicted", "0.000", "0.000", "0.000", "0.667", "1"],
        ["cow", "no images", "", "", "", "", "0"],
        ["macro average", "", "0.375", "0.500", "0.429", "", ""],
        ["weighted average", "", "0.562", "0.750", "0.643", "", ""],
    ]
    assert "<li>never predicted: &#x27;dog&#x27;</li>" in text
    assert "top-2 accuracy 1.000" in text
    assert text.count("<circle") == 4
