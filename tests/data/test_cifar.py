"""CIFAR-10: the binary version, never the pickle."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from minorm.data import load_cifar10
from minorm.data.cifar import RECORD, TEST, TRAIN


def records(count: int, seed: int) -> np.ndarray[Any, Any]:
    found = np.random.default_rng(seed).integers(0, 256, (count, RECORD), dtype=np.uint8)
    found[:, 0] %= 10
    return found


def cifar_folder(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for i, name in enumerate((*TRAIN, TEST)):
        (folder / name).write_bytes(records(i + 1, i).tobytes())


@pytest.mark.parametrize("place", ["", "cifar-10-batches-bin"])
def test_the_binary_version(tmp_path: Path, place: str) -> None:
    cifar_folder(tmp_path / place)
    train, test = load_cifar10(tmp_path)
    assert (len(train), len(test)) == (1 + 2 + 3 + 4 + 5, 6)
    images, labels = train[:]
    assert images.shape == (15, 3, 32, 32)
    assert images.dtype == np.float32
    assert labels.dtype == np.int64
    third = records(3, 2)  # images 3 to 5
    assert labels[3:6].tolist() == third[:, 0].tolist()
    assert np.array_equal(images[3:6].reshape(3, -1), third[:, 1:].astype(np.float32) / np.float32(255))
    assert images[3, 1, 2, 4] == third[0, 1 + 1024 + 2 * 32 + 4] / np.float32(255), "green, row 2, column 4"
    assert test[:][1].tolist() == records(6, 5)[:, 0].tolist()


@pytest.mark.parametrize("place", ["", "cifar-10-batches-py"])
def test_the_pickle_is_refused(tmp_path: Path, place: str) -> None:
    (tmp_path / place).mkdir(exist_ok=True)
    (tmp_path / place / "data_batch_1").write_bytes(b"cos\nsystem\n(S'touch hacked'\ntR.")
    with pytest.raises(
        ValueError,
        match=r"load_cifar10: .* holds the Python version of CIFAR-10\. .* are pickles.*put the binary version there",
    ):
        load_cifar10(tmp_path)


@pytest.mark.timeout(10)
def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    for name in (TEST, TRAIN[0]):
        cifar_folder(tmp_path)
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
        with pytest.raises(OSError, match=f"^load_cifar10: '{tmp_path / name}' is a pipe; expected a regular file$"):
            load_cifar10(tmp_path)
        (tmp_path / name).unlink()


def test_a_folder_without_the_files(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"load_cifar10: found no data_batch_1.bin in .*nothing is downloaded"):
        load_cifar10(tmp_path)
    cifar_folder(tmp_path)
    (tmp_path / TEST).unlink()
    (tmp_path / TRAIN[2]).unlink()
    with pytest.raises(FileNotFoundError, match=r"load_cifar10: .* lacks data_batch_3.bin, test_batch.bin"):
        load_cifar10(tmp_path)


@pytest.mark.parametrize("size", [0, 1, RECORD - 1, RECORD + 1, 10_001 * RECORD])
def test_a_file_of_another_size(tmp_path: Path, size: int) -> None:
    cifar_folder(tmp_path)
    with open(tmp_path / TRAIN[1], "wb") as file:
        file.truncate(size)
    with pytest.raises(
        ValueError, match=rf"data_batch_2.bin has {size} bytes; expected 3073 bytes per image, and at most 10000"
    ):
        load_cifar10(tmp_path)


def test_a_label_out_of_range(tmp_path: Path) -> None:
    cifar_folder(tmp_path)
    wrong = records(3, 0)
    wrong[2, 0] = 10
    (tmp_path / TEST).write_bytes(wrong.tobytes())
    with pytest.raises(ValueError, match=r"test_batch.bin has the label 10; expected 0 to 9"):
        load_cifar10(tmp_path)
