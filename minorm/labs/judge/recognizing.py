"""Recognizes the mistake behind a wrong answer: computes the answers that typical mistakes give.

A lab has a class `Right` with the functions of its tasks, and a subclass of `Right` for each mistake. The subclass
overrides one function, and the subclass's docstring says what the mistake is:

    class DivisorOneLess(Right):
        \"\"\"the variance is divided by m - 1, as with ddof=1\"\"\"

When a check fails, each class gets the arguments that the student's functions got. A mistake is named only if all its
answers equal the student's answers up to the last digits, and if the right answer is another one.

Mistakes are written for the plain lab. If a lab has variants, `translated(name, function)` adapts a function to the
variant. The result converts its arguments to those of the plain lab, calls the function, and converts the answer back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from minorm.labs.calling.student import Call
from minorm.labs.scores import Outcome
from minorm.labs.varied import rendering
from minorm.labs.varied.choices import PLAIN, Variants

# How far equal answers may differ, in units of the largest number: the student's wrong answer from the mistake's, and a
# right answer from the mistake's.
CLOSE, ROUGH = 1e-12, 1e-6
OF_PLAIN = "the answer uses the numbers and axes of the lab without a variant"

Translated = Callable[[str, Callable[..., Any]], Callable[..., Any]]


def as_it_is(_: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` unchanged. This is the `translated` of a lab without variants."""
    return function


@dataclass(frozen=True)
class Recognizer:
    """Recognizes the mistakes of a lab.

    `right` is the class of right functions, and `mistakes` has a subclass for each mistake.
    """

    right: type
    mistakes: Sequence[type]
    variants: Variants = field(default_factory=Variants)
    translated: Translated = as_it_is

    @classmethod
    def of(
        cls, right: type, names: Mapping[str, Any], variants: Variants | None = None, translated: Translated = as_it_is
    ) -> Recognizer:
        """Make a Recognizer with all subclasses of `right` in `names`, which is `vars()` of a module."""
        found = [value for value in names.values() if isinstance(value, type) and issubclass(value, right)]
        return cls(right, [value for value in found if value is not right], variants or Variants(), translated)

    def names(self, calls: Iterable[Call], right: Iterable[Call]) -> list[str]:
        """Return the mistakes that explain the calls of a failed check, in words.

        calls  the calls of the check; the last call failed, and the calls before it may be right
        right  the calls of checks that passed; a mistake must also give the answers of these calls
        """
        made = list(calls)
        if not made or not hasattr(self.right, made[-1].name) or self._gives(self.right(), made[-1]):
            return []
        if self._is_plain(made):
            return [OF_PLAIN]
        found = [mistake for mistake in self._possible() if self._explains(mistake, made, CLOSE)]
        within = self._built_on(made[-1])
        evidence = [call for call in right if call.name in within]
        likely = [mistake for mistake in found if self._explains(mistake, evidence, ROUGH)]
        words = [" ".join((mistake.__doc__ or "").split()) for mistake in likely]
        return [rendering.with_pieces(each, self.variants, self.variants.variant) for each in dict.fromkeys(words)]

    def difference(self, calls: Sequence[Call]) -> str:
        """Describe how the failed call's answer differs from the right answer, such as by one factor.

        Return "" if no single number describes it.
        """
        if not calls or calls[-1].error or not hasattr(self.right, calls[-1].name):
            return ""
        call = calls[-1]
        with np.errstate(all="ignore"):
            try:
                right = self._function(self.right(), call.name)(*call.args, **call.options)
            except Exception:  # noqa: BLE001  the student's own error is what there is to see
                return ""
            pairs = zip(
                *(value if isinstance(value, tuple) else (value,) for value in (right, call.answer)), strict=False
            )
            return next(filter(None, (_difference(*pair) for pair in pairs)), "")

    def _built_on(self, call: Call) -> set[str]:
        """Return the names of the function that `call` calls and of all methods that the right function uses."""
        used = {call.name}

        class Watched(self.right):  # type: ignore[misc, name-defined]  # a class that is known only at run time
            def __getattribute__(self, name: str) -> Any:
                used.add(name)
                return super().__getattribute__(name)

        self._gives(Watched(), call)
        return used

    def _possible(self) -> Sequence[type]:
        """Return the mistakes that students can make in this variant.

        In a variant other than the plain lab, mistakes with `of_plain` are left out.
        """
        if not self.variants.variant.code:
            return self.mistakes
        return [mistake for mistake in self.mistakes if not getattr(mistake, "of_plain", False)]

    def _is_plain(self, calls: Sequence[Call]) -> bool:
        """Return whether the last answer would be right in the plain lab, although another variant is graded.

        Old or copied solutions give such answers.
        """
        if not self.variants.variant.code:
            return False
        with self.variants.using(PLAIN):
            return _equal(getattr(self.right(), calls[-1].name), calls[-1])

    def _explains(self, mistake: type, calls: Iterable[Call], close: float) -> bool:
        """Return whether a student with this mistake would have given the same answers in all these calls."""
        functions = mistake()
        return all(self._gives(functions, call, close) for call in calls if hasattr(functions, call.name))

    def _gives(self, functions: Any, call: Call, close: float = CLOSE) -> bool:
        return _equal(self._function(functions, call.name), call, close)

    def _function(self, functions: Any, name: str) -> Callable[..., Any]:
        function: Callable[..., Any] = getattr(functions, name)
        return self.translated(name, function) if self.variants.variant.code else function


@dataclass(frozen=True)
class Failed:
    """The calls of a failed check.

    `right` has the calls of the checks that passed, which are complete only at the end.
    """

    calls: Sequence[Call]
    right: Iterable[Call]


def hinted(rows: Sequence[Outcome], recognizer: Recognizer | None) -> list[Outcome]:
    """Add a hint to each failed row. If several mistakes explain a row, the one that explains most rows is named."""
    if recognizer is None:
        return [row.but(failures=()) for row in rows]
    found = [
        next(filter(None, (recognizer.names(failed.calls, failed.right) for failed in row.failures)), [])
        for row in rows
    ]
    counts = Counter(words for mistakes in found for words in mistakes)
    hints = []
    for mistakes in found:
        most = max([counts[words] for words in mistakes], default=0)
        likely = [words for words in mistakes if counts[words] == most]
        hints.append(f"this is what you get when {', or when '.join(likely)}" if likely else "")
    for place, row in enumerate(rows):
        if row.failures and not hints[place]:
            hints[place] = recognizer.difference(row.failures[0].calls)
    return [row.but(hint=hint, failures=()) for row, hint in zip(rows, hints, strict=True)]


def _equal(function: Callable[..., Any], call: Call, close: float = CLOSE) -> bool:
    """Return whether the function gives the same answer as the student's function in this call.

    An error has to be of the same kind.
    """
    try:
        with np.errstate(all="ignore"):
            answer = function(*call.args, **call.options)
    except Exception as error:  # noqa: BLE001  a mistake may end in any error
        words = f"{type(error).__name__}: {error}".split()
        return " ".join(words[: 3 if close == CLOSE else 1]) in call.error  # later words depend on the code's wording
    return not call.error and same(answer, call.answer, close)


def _difference(right: Any, answer: Any) -> str:
    """Say how two arrays differ: by one factor, by one distance, or only by rounding to float32.

    Return "" for other differences.
    """
    if not isinstance(right, np.ndarray) or not isinstance(answer, np.ndarray) or right.shape != answer.shape:
        return ""
    if right.dtype.kind != "f" or answer.dtype.kind != "f" or right.size < 3 or same(right, answer):
        return ""
    if right.dtype == np.float64 and same(right, answer, 1e-5) and np.array_equal(answer, answer.astype(np.float32)):
        return "the numbers are right to 7 digits, the precision of float32, so part of the computation is in float32"
    used = right != 0
    ratios = answer[used] / right[used]
    if ratios.size >= 3 and np.isfinite(ratios).all() and np.ptp(ratios) <= CLOSE * abs(ratios[0]) * 100:
        return f"each number is {ratios[0]:.6g} times the right number"
    distances = answer - right
    if np.isfinite(distances).all() and np.ptp(distances) <= CLOSE * np.abs(right).max() * 100:
        return (
            f"each number is the right number {'plus' if distances.flat[0] > 0 else 'minus'} "
            f"{abs(distances.flat[0]):.6g}"
        )
    return ""


def same(one: Any, other: Any, close: float = CLOSE) -> bool:
    """Return whether two answers are equal.

    Numbers are compared up to rounding; shapes and kinds of types must be the same.
    """
    if isinstance(one, (tuple, list)):
        return (
            isinstance(other, (tuple, list))
            and len(one) == len(other)
            and all(same(*pair, close) for pair in zip(one, other, strict=True))
        )
    if isinstance(one, dict):
        return (
            isinstance(other, dict)
            and one.keys() == other.keys()
            and all(same(one[key], other[key], close) for key in one)
        )
    if hasattr(one, "block"):  # the statistics that a backend's forward returns
        return hasattr(other, "block") and same(one.block, other.block, close)
    if one is None or other is None or isinstance(one, str) or isinstance(other, str):
        return type(one) is type(other) and bool(one == other)
    try:
        first, second = np.asarray(one), np.asarray(other)
    except ValueError:  # lists of uneven lengths
        return False
    if first.shape != second.shape or first.dtype.kind != second.dtype.kind:
        return False
    if first.dtype.kind not in "fc":
        return bool(np.array_equal(first, second))
    size = np.abs(first[np.isfinite(first)]).max(initial=0.0)
    within = max(close, 8 * float(np.finfo(first.dtype).eps)) * size
    return bool(np.allclose(first, second, rtol=0, atol=within, equal_nan=True))
