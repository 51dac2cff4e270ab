"""Advice about missing names: the name that it suggests exists, and the name that it is for does not."""

from __future__ import annotations

import importlib
import re

import pytest

import minorm as mn
from minorm import data, nn
from minorm.data import transforms
from minorm.support import elsewhere

NAMES = [(place, name) for place, names in elsewhere._ADVICE.items() for name in names]


@pytest.mark.parametrize(("place", "name"), NAMES)
def test_the_name_is_not_there_and_what_the_advice_names_is(place: str, name: str) -> None:
    assert not hasattr(nn.Module() if place == "Module" else importlib.import_module(place), name)
    for path in re.findall(r"minorm((?:\.\w+)+)", elsewhere.advice(place, name)):
        found = mn
        for part in path.split(".")[1:]:
            found = getattr(found, part)


def test_all_transforms_are_found_from_where_people_look() -> None:
    missing = [name for name in transforms.__all__ if not hasattr(data, name)]
    assert missing
    for name in missing:
        assert elsewhere.advice("minorm.data", name) == f"; write minorm.data.transforms.{name}"


def test_a_package_without_late_names() -> None:
    get = elsewhere.absent("minorm.cuda")
    with pytest.raises(AttributeError, match=r"^module 'minorm\.cuda' has no attribute 'amp'; write minorm\.amp"):
        get("amp")
    assert elsewhere.advice("minorm.cuda", "unknown") == elsewhere.advice("unknown", "amp") == ""
