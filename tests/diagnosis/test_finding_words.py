"""Every finding has words, whose numbers are those of the finding."""

from __future__ import annotations

import pytest

import minorm as mn
from minorm.diagnosis import finding_words
from tests.diagnosis import planting


@pytest.mark.parametrize("name", planting.PLANTED)
def test_the_words_are_filled_in(name: str) -> None:
    sick = planting.PLANTED[name]()
    found = mn.diagnose(sick.model, sick.batches or planting.loader(), batch_size=sick.batch_size)
    finding = next(f for f in found.findings if f.name == sick.name)
    text = finding_words.words(finding.name, finding.numbers)
    for part in (text.seen, text.why, text.fix):
        assert part
        assert not set("{}") & set(part)
        assert "nan" not in part
    assert (finding.why, finding.fix) == (text.why, text.fix)


def test_a_fix_names_what_to_do() -> None:
    for name, text in finding_words.WORDS.items():
        assert any(
            word in text.fix
            for word in ("nn.", "momentum", "eps=", "remove", "training=", "subtract", "weight_decay", "smaller")
        ), name
