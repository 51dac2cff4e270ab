"""Answers that a student's function computes with NumPy alone, without a library that has the formula."""

from __future__ import annotations

from typing import Any

from minorm.labs.comparing import true


def own_answer(student: Any, name: str, *args: Any, **options: Any) -> Any:
    """The answer of the student's function; Wrong if the function calls a package other than NumPy.

    The lab's module in minorm.labs.beside has packages_of.
    """
    answer = getattr(student, name)(*args, **options)
    called = student.drive("packages_of", name=name, args=list(args), options=options)
    true(not called, f"what {name} calls", "NumPy alone", ", ".join(map(str, called)))
    return answer
