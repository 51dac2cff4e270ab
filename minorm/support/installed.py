"""Detects two distributions in one folder: ours is called minorm-nn, and another one called minorm overwrites it.

pip overwrites existing files without a warning. Once both are installed, some modules are ours and some are not, and
the errors that follow do not name the cause. A plain import does not check, because that would take 10 ms.
"""

from __future__ import annotations

NAME, BEFORE = "minorm-nn", "minorm"  # our name for pip; our name up to 0.1, now that of another project
AUTHOR = "the minorm developers"


def conflict() -> str | None:
    """Return a sentence on the fault and its remedy; None if minorm-nn is alone or runs from a folder."""
    from importlib.metadata import Distribution, distributions  # takes 10 ms

    def find(name: str) -> Distribution | None:
        # An .egg-info that a build left in a checkout is no installation; METADATA has only what was installed.
        return next((found for found in distributions(name=name) if found.read_text("METADATA")), None)

    other = find(BEFORE)
    # An editable installation writes nothing there, and so does not count.
    if other is None or not any(file.parts[0] == "minorm" for file in other.files or ()) or find(NAME) is None:
        return None
    whose = "this project under its old name" if other.metadata["Author"] == AUTHOR else "another project"
    return (
        f"the distribution {BEFORE} {other.version}, {whose}, is installed beside {NAME} and writes into the "
        f"same folder; `pip uninstall {BEFORE}`, then `pip install --force-reinstall --no-deps .` "
        f"in a clone of {NAME}"
    )


def explain(error: ImportError) -> None:
    """Append that sentence to the error's message, if there is a conflict."""
    if said := conflict():
        error.msg = f"{error.msg}; {said}"
