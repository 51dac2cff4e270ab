"""Detects if the distribution "minorm" of another project has overwritten files of ours, "minorm-nn".

pip overwrites existing files without a warning. If both distributions are installed, some modules are ours and others
are not, and the resulting errors do not name the cause. A plain import does not check for this conflict, because the
check takes 10 ms.
"""

from __future__ import annotations

NAME, BEFORE = "minorm-nn", "minorm"  # our name for pip; our name up to 0.1, now that of another project
AUTHOR = "the minorm developers"


def conflict() -> str | None:
    """Return a sentence about the conflict and its remedy, or None if only one distribution is installed."""
    from importlib.metadata import Distribution, distributions  # takes 10 ms

    def find(name: str) -> Distribution | None:
        # An .egg-info that a build left in a checkout is not an installation; only an installation has METADATA.
        return next((found for found in distributions(name=name) if found.read_text("METADATA")), None)

    other = find(BEFORE)
    # An editable installation writes no files there, and so does not count.
    if other is None or not any(file.parts[0] == "minorm" for file in other.files or ()) or find(NAME) is None:
        return None
    whose = "this project under its old name" if other.metadata["Author"] == AUTHOR else "another project"
    return (
        f"the distribution {BEFORE} {other.version} ({whose}) is installed in the same folder as {NAME}; run `pip "
        f"uninstall {BEFORE}`, then `pip install --force-reinstall --no-deps .` in a clone of {NAME}"
    )


def explain(error: ImportError) -> None:
    """Append the sentence of `conflict` to the error's message, if there is a conflict."""
    if said := conflict():
        error.msg = f"{error.msg}; {said}"
