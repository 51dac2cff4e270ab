"""The count of parameters agrees with the model that is built."""

from __future__ import annotations

from pathlib import Path

import pytest

from minorm import models
from minorm.training.model import parameter_counts
from tests.models.undrawn import undrawn

SMALL = [name for name in models.BY_NAME if name not in parameter_counts.PUBLISHED]


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize(("channels", "size", "classes"), [(1, 12, 2), (3, 33, 7), (5, 40, 1)])
def test_as_many_as_the_model_has(name: str, channels: int, size: int, classes: int) -> None:
    made = models.build(name, channels, size, classes)
    assert parameter_counts.parameters(name, channels, size, classes) == sum(p.numel() for p in made.parameters())


@pytest.mark.parametrize("name", parameter_counts.PUBLISHED)
def test_as_many_as_a_network_with_torchvisions_keys_has(name: str) -> None:
    for facts in ({"channels": 1, "size": 32, "classes": 2}, {"channels": 5, "size": 64, "classes": 7}):
        with undrawn():
            made = models.build(name, **facts)
        assert parameter_counts.parameters(name, **facts) == sum(p.numel() for p in made.parameters())


@pytest.mark.parametrize("name", SMALL)
def test_a_file_of_16_bits_holds_its_own_model_and_no_larger_one(name: str, tmp_path: Path) -> None:
    facts = {"name": name, "channels": 3, "size": 32, "classes": 10}
    count = sum(p.numel() for p in models.build(**facts).parameters())
    (tmp_path / "file").write_bytes(bytes(2 * count))
    parameter_counts.check(facts, str(tmp_path / "file"))
    with pytest.raises(ValueError, match=f"classes=11, of .* parameters; a file of {2 * count:,} bytes cannot"):
        parameter_counts.check({**facts, "classes": 11}, str(tmp_path / "file"))
