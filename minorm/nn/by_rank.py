"""Layers that differ in how many axes they have, as Conv1d, Conv2d and Conv3d do: two lines for each rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.argument_texts import AXES
from minorm.nn.module import Module
from minorm.support.documented import arguments_of, documented


class OfRank(Module):
    """Base of a family, whose members say their rank: `class MaxPool2d(_MaxPool, rank=2)`.

    family     the functions that the members call: "max_pool" is `F.max_pool1d` ...
    arguments  what the arguments mean; without it, what they mean to the function

    A member's docstring begins with its formula, and goes on with that of its family, in the words of its rank; other
    keywords are more such words.
    """

    _rank: ClassVar[int]
    _words: ClassVar[Mapping[str, str]] = {}
    family: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]]
    function: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, rank: int = 0, **words: str) -> None:
        super().__init_subclass__()
        cls._words = {**cls._words, **words}
        if not rank:  # a family, or a subclass of the user's
            return
        cls._rank = rank
        if cls.family:
            cls.function = staticmethod(getattr(F, f"{cls.family}{rank}d"))
        texts = cls.arguments if hasattr(cls, "arguments") else arguments_of(cls.function)
        family = next((base for base in cls.__mro__[1:] if vars(base).get("__doc__")), None)
        documented(texts, base=family, words={**AXES[rank], **cls._words})(cls)
