"""How many processes a launcher has started, from what it sets in the environment."""

from __future__ import annotations

import pytest

from minorm.distributed.launcher import launched

ALL = ("PMI_SIZE", "PMI_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK", "SLURM_NTASKS", "PMIX_RANK")


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"PMI_SIZE": "4", "PMI_RANK": "3"}, (3, 4)),
        ({"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1", "PMIX_RANK": "1"}, (1, 2)),
        ({"SLURM_NTASKS": "64", "PMIX_RANK": "5"}, (5, 64)),
        ({"SLURM_NTASKS": "64"}, (0, 1)),  # in an sbatch script, outside srun
        ({"PMI_SIZE": "x", "PMI_RANK": "0"}, (0, 1)),
    ],
)
def test_launched(variables: dict[str, str], expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ALL:
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert launched() == expected
