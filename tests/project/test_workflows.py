"""The workflows of .github/workflows: when each runs, what it may do, and that the commands it runs are there."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / ".github" / "workflows"
NAMES = sorted(path.name for path in FOLDER.glob("*.yml"))
# The scripts of .ci that a workflow may call, and what they call in their turn.
SCRIPTS = ["lint", "run", "smoke"]
PLACEHOLDER = "<address of this repository>"


def workflow(name: str) -> dict[Any, Any]:
    return yaml.safe_load((FOLDER / name).read_text(encoding="utf-8"))


def events(name: str) -> dict[str, Any]:
    return workflow(name)[True]  # `on` is YAML's word for True


def steps(name: str) -> list[dict[str, Any]]:
    return [step for job in workflow(name)["jobs"].values() for step in job["steps"]]


def commands(name: str) -> list[str]:
    return [line for step in steps(name) for line in step.get("run", "").splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_a_job_says_where_it_runs_how_long_and_what_it_may_do(name: str) -> None:
    for job in workflow(name)["jobs"].values():
        assert job.keys() >= {"runs-on", "timeout-minutes", "permissions", "steps"}
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step)
            if step.get("uses", "").startswith("actions/checkout"):
                assert step["with"]["persist-credentials"] is False


def test_an_action_has_the_same_version_everywhere() -> None:
    used = {step["uses"] for name in NAMES for step in steps(name) if "uses" in step}
    assert len({action.partition("@")[0] for action in used}) == len(used), sorted(used)


def test_a_pull_request_is_asked_what_takes_minutes_and_may_only_be_read() -> None:
    assert [name for name in NAMES if "pull_request" in events(name)] == ["pull-request.yml"]
    assert not [name for name in NAMES if "pull_request_target" in events(name)]  # it would run with our rights
    jobs = workflow("pull-request.yml")["jobs"]
    assert jobs.keys() == {"lint", "smoke"}
    assert all(job["permissions"] == {"contents": "read"} and job["timeout-minutes"] <= 15 for job in jobs.values())
    assert jobs["lint"]["steps"][-1]["run"] == ".ci/lint"
    assert jobs["smoke"]["steps"][-1]["run"] == ".ci/smoke"
    assert "secrets" not in (FOLDER / "pull-request.yml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["bits.yml", "nightly.yml"])
def test_the_rest_runs_each_night_and_on_main(name: str) -> None:
    found = events(name)
    assert found["push"] == {"branches": ["main"]}
    (when,) = found["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", when["cron"])


def test_the_night_has_the_whole_suite_and_the_platforms_of_a_release() -> None:
    jobs = workflow("nightly.yml")["jobs"]
    assert jobs["everything"]["steps"][-1]["run"] == ".ci/run"
    assert jobs["wheels"]["strategy"] == workflow("release.yml")["jobs"]["wheels"]["strategy"]
    assert {permission for job in jobs.values() for permission in job["permissions"].values()} == {"read"}
    pythons = re.findall(r"Python :: 3\.(\d+)\"", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    built = jobs["wheels"]["steps"][-1]["env"]["CIBW_BUILD"].split()
    assert built == [
        f"cp3{minor}-{system}*" for minor in (pythons[0], pythons[-1]) for system in ("manylinux", "macosx")
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_workflow_runs_is_there(name: str) -> None:
    for line in commands(name):
        for script in re.findall(r"\.ci/([\w-]+)", line):
            assert script in SCRIPTS
        for module in re.findall(r"python -m (tests\.[\w.]+)", line):
            assert (ROOT / (module.replace(".", "/") + ".py")).exists(), module


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_of_a_workflow_can_be_run_and_the_tests_that_it_names_are_there(script: str) -> None:
    path = ROOT / ".ci" / script
    assert os.access(path, os.X_OK)
    for name in re.findall(r"(?<![\w/.\"])tests/[\w/.]+(?<!\.)", path.read_text(encoding="utf-8")):
        assert (ROOT / name).exists(), name


def test_a_release_has_the_address_of_its_repository_in_place_of_the_placeholder(tmp_path: Path) -> None:
    (step,) = [step for step in steps("release.yml") if step.get("name") == "The pages say where to clone from"]
    assert step["if"] == "github.ref_type == 'tag'"
    pages = ("README.md", "docs/quick-start.md")
    (tmp_path / "docs").mkdir()
    for filled in (False, True):
        for page in pages:
            assert "\ngit clone " in (ROOT / page).read_text(encoding="utf-8")
            (tmp_path / page).write_text(f"git clone {'https://host/minorm' if filled else PLACEHOLDER}\n")
        ended = subprocess.run(["bash", "-e", "-c", step["run"]], cwd=tmp_path, capture_output=True, check=False)
        assert ended.returncode == (0 if filled else 1)
    releasing = (ROOT / "RELEASING.md").read_text(encoding="utf-8")
    assert all(page in releasing.partition(PLACEHOLDER)[0] for page in pages)


def test_the_linters_are_called_in_one_place() -> None:
    lint = (ROOT / ".ci" / "lint").read_text(encoding="utf-8")
    assert all(f"\n{command}\n" in lint for command in ("ruff check .", "cython-lint minorm_ext", "mypy"))
    assert "\n.ci/lint\n" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "tests/test_smoke.py" in (ROOT / ".ci" / "smoke").read_text(encoding="utf-8")
