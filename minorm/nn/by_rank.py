"""Makes families of layers that differ only in the number of axes, such as Conv1d, Conv2d and Conv3d."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import minorm.functional as F
from minorm.functional.argument_texts import AXES
from minorm.nn.module import Module
from minorm.support.documented import arguments_of, documented


class OfRank(Module):
    """Base of a family of layers. Each member states its rank: `class MaxPool2d(_MaxPool, rank=2)`.

    family     the name of the functions that the members call: "max_pool" means `F.max_pool1d` ...
    arguments  the descriptions of the arguments; by default these are the descriptions of the function's arguments

    A member's docstring begins with its formula. The family's docstring follows, with the words for the rank filled in.
    More words can be given as keywords in the class statement.
    """

    _rank: ClassVar[int]
    _words: ClassVar[Mapping[str, str]] = {}
    family: ClassVar[str] = ""
    arguments: ClassVar[Mapping[str, str]]
    function: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, rank: int = 0, **words: str) -> None:
        super().__init_subclass__()
        cls._words = {**cls._words, **words}
        if not rank:  # a family, or a user's subclass
            return
        cls._rank = rank
        if cls.family:
            cls.function = staticmethod(getattr(F, f"{cls.family}{rank}d"))
        texts = cls.arguments if hasattr(cls, "arguments") else arguments_of(cls.function)
        family = next((base for base in cls.__mro__[1:] if vars(base).get("__doc__")), None)
        documented(texts, base=family, words={**AXES[rank], **cls._words})(cls)
