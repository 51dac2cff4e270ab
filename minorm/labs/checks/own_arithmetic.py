"""Gets answers that a student's function computes with NumPy alone."""

from __future__ import annotations

from typing import Any

from minorm.labs.comparing import true


def own_answer(student: Any, name: str, *args: Any, **options: Any) -> Any:
    """Return the answer of the student's function; raise Wrong if the function calls another package than NumPy.

    The lab's module in minorm.labs.beside must import packages_of, which finds these packages.
    """
    answer = getattr(student, name)(*args, **options)
    called = student.drive("packages_of", name=name, args=list(args), options=options)
    true(not called, f"what {name} calls", "NumPy alone", ", ".join(map(str, called)))
    return answer
