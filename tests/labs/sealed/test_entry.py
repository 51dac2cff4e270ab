"""Until the walls are up, no NumPy: Landlock would not hold for threads that were there before."""

from __future__ import annotations

from tests.labs.sealed.alone import alone


def test_nothing_but_the_standard_library_is_imported() -> None:
    code = "from minorm.labs.sealed import attack, compiler, entry\nprint(sorted(sys.modules))"
    names = {name.split(".")[0] for name in eval(alone(code))}
    assert not names & {"numpy", "minorm_ext", "scipy", "ml_dtypes"}
