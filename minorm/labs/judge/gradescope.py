"""A zip for Gradescope's autograder: what sets its machine up, and what grades one submission there.

    setup.sh         an environment with the wheel and the packages of the lab; runs once
    run_autograder   `minorm labs check N FILE --json --seed -`, into results.json; runs for each submission
    seed.txt         the hidden numbers' seed; only root reads it
    *.whl            minorm, which no package index has
    labs/            the folder of a lab of one's own; only root reads it

Gradescope runs both as root. The judge puts a student's process behind walls and under a user of its own, so that it
sees neither the seed nor the wheel's folder. https://gradescope-autograders.readthedocs.io/en/latest/specs/
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
# Once: an environment in a place that any user may read, as a student's process runs as a user of its own.
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
    """Write the zip. variant: a year or another text; ValueError for a file that is no wheel of this project."""
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
    """The Python that the wheel was made for; any wheel without kernels runs on the oldest that minorm takes."""
    found = re.search(r"-cp3(\d+)-", wheel.name)
    return f"python3.{found[1] if found else 11}"


def _folder(lab: Lab) -> dict[str, bytes]:
    """The files of a lab of one's own by their names in the zip; none of a lab of the course."""
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
    """A report's results.json with the checks that students do not have shown when `hidden` says."""
    tests = [{**test, "visibility": hidden if "hidden" in test["tags"] else "visible"} for test in found["tests"]]
    return {**found, "tests": tests}
