"""Writes a zip for Gradescope's autograder: it sets up the machine and grades one submission there.

    setup.sh         makes an environment with the wheel and the packages of the lab; it runs once
    run_autograder   writes the output of `minorm labs check N FILE --json --seed -` to results.json; it runs for each
                     submission
    seed.txt         the seed of the numbers in hidden checks; only root can read this file
    *.whl            minorm, which no package index has
    labs/            the folder of your own lab; only root can read this folder

Gradescope runs both scripts as root. The judge puts a student's process behind walls and under a separate user, so that
it sees neither the seed nor the wheel's folder. https://gradescope-autograders.readthedocs.io/en/latest/specs/
"""

from __future__ import annotations

import re
import shlex
import zipfile
from pathlib import Path
from typing import Any

from minorm.labs.lab import PIP, Lab
from minorm.labs.varied.choices import NAME_OF_PLAIN
from minorm.serialization import atomic
from minorm.serialization.opening import contents
from minorm.support.safe_names import quoted

HIDDEN = ("visible", "after_due_date", "after_published", "hidden")  # Gradescope's words
PLACE = "${AUTOGRADER:-/autograder}"  # another folder in tests

SETUP = f"""\
#!/usr/bin/env bash
# Once: an environment in a place that any user may read, as a student's process runs as a separate user.
set -euo pipefail
apt-get update
apt-get install -y PYTHON PYTHON-dev PYTHON-venv gcc g++ # beside the 3.10 that Ubuntu 22.04 has by itself
PYTHON -m venv "{PLACE}/environment"
"{PLACE}/environment/bin/pip" install "{PLACE}/source/WHEEL[demo]" "Cython>=3.1"PACKAGES
chmod -R a+rX "{PLACE}/environment"
chmod 600 "{PLACE}/source/seed.txt"
[ ! -e "{PLACE}/source/labs" ] || chmod -R go= "{PLACE}/source/labs"
"""

RUN = f"""\
#!/usr/bin/env bash
# For each submission: of several files the one that was changed.
set -uo pipefail
place="{PLACE}"
"$place/environment/bin/minorm" labs check NUMBER "$place/submission" --json --hidden HIDDEN_CHECKS \\
    --seed -VARIANT_AND_FOLDER < "$place/source/seed.txt" > "$place/results/results.json"
[ $? -le 1 ] # 1: not all points
"""


def write(path: str | Path, lab: Lab, wheel: Path, seed: int, hidden: str, variant: str = NAME_OF_PLAIN) -> None:
    """Write the zip. ValueError is raised if the file is not a wheel of this project.

    variant: a year, or another text that names a variant
    """
    if not re.fullmatch(r"minorm_nn-[\w.!+]+-[\w.-]+\.whl", wheel.name):
        raise ValueError(
            f"labs gradescope: --wheel is {wheel.name}; expected minorm_nn-VERSION-TAGS.whl, as `pip wheel .` makes it"
        )
    own = _folder(lab)
    packages = "".join(f' "{PIP.get(name, name)}"' for name in lab.packages if own)
    lab_dir = ' --lab-dir "$place/source/labs"' if own else ""
    of_variant = f" --variant {shlex.quote(variant)}" if lab.variants else ""
    run = RUN.replace("NUMBER", str(lab.number)).replace("HIDDEN_CHECKS", hidden)
    run = run.replace("VARIANT_AND_FOLDER", of_variant + lab_dir)
    files = {
        "setup.sh": SETUP.replace("WHEEL", wheel.name).replace("PACKAGES", packages).replace("PYTHON", _python(wheel)),
        "run_autograder": run,
        "seed.txt": f"{seed}\n",
    }
    content = contents(wheel, "labs gradescope")
    with atomic.replacing(path, "labs gradescope") as target, zipfile.ZipFile(target, "w") as archive:
        for name, text in files.items():
            entry = zipfile.ZipInfo(name)
            entry.external_attr = (0o600 if name == "seed.txt" else 0o755) << 16
            archive.writestr(entry, text)
        for name, data in {wheel.name: content, **own}.items():
            archive.writestr(zipfile.ZipInfo(name), data)


def _python(wheel: Path) -> str:
    """Return the Python that the wheel was made for; for a wheel without kernels, the oldest that minorm supports."""
    found = re.search(r"-cp3(\d+)-", wheel.name)
    return f"python3.{found[1] if found else 11}"


def _folder(lab: Lab) -> dict[str, bytes]:
    """Return the files of your own lab by their names in the zip; empty for a lab of the course."""
    if lab.folder is None:
        return {}
    paths = [path for path in sorted(lab.folder.rglob("*")) if not path.is_dir()]
    named = {path.relative_to(lab.folder.parent): path for path in paths}
    kept = {name: path for name, path in named.items() if not any(part.startswith((".", "__")) for part in name.parts)}
    for name in map(str, kept):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"labs gradescope: {quoted(name)} is not UTF-8, as a name in a zip has to be; rename it"
            ) from None
    return {f"labs/{name.as_posix()}": contents(path, "labs gradescope") for name, path in kept.items()}


def results(found: dict[str, Any], hidden: str) -> dict[str, Any]:
    """Return a report's results.json. `hidden` says when Gradescope shows the results of hidden checks."""
    tests = [{**test, "visibility": hidden if "hidden" in test["tags"] else "visible"} for test in found["tests"]]
    return {**found, "tests": tests}
