"""ImageFolder: names once, pictures when asked for; labels by folder, splits that repeat, errors that name a folder."""

from __future__ import annotations

import copy
import os
import pickle
import time
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import minorm as mn
from minorm.data import BrokenImage, DataLoader, ImageFolder, Subset, load_folder, read_image
from minorm.data import transforms as T

Image = pytest.importorskip("PIL.Image")

KINDS = ("disc", "stripes", "squares")


def folder_of(root: Path, classes: tuple[str, ...] = KINDS, each: int = 5) -> str:
    for kind, name in enumerate(classes):
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(each):
            pixels = np.random.default_rng((kind, i)).integers(0, 256, (20, 24, 3), np.uint8)
            Image.fromarray(pixels).save(root / name / f"{i:03}.png")
    return str(root)


def test_labels_are_folders_in_alphabetical_order(tmp_path: Path) -> None:
    folder = ImageFolder(folder_of(tmp_path), 16)
    assert folder.classes == ["disc", "squares", "stripes"]
    assert len(folder) == 15
    assert folder.labels.tolist() == [0] * 5 + [1] * 5 + [2] * 5
    assert folder.files[5] == "squares/000.png"
    image, label = folder[7]
    assert (image.dtype, image.shape, label) == (np.float32, (3, 16, 16), 1)
    assert np.array_equal(image, read_image(tmp_path / "squares/002.png", 16).astype(np.float32) / np.float32(255))
    images, labels = folder.batch(np.array([14, 7]))
    assert np.array_equal(images[1], image)
    assert labels.tolist() == [2, 1]
    assert ImageFolder(str(tmp_path), 16, channels=1)[0][0].shape == (1, 16, 16)


def test_folders_within_a_class_count_and_other_files_do_not(tmp_path: Path) -> None:
    root = folder_of(tmp_path, ("a", "b"), 2)
    (tmp_path / "a" / "deeper").mkdir()
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / "deeper" / "x.JPG", "jpeg")
    (tmp_path / "b" / "notes.txt").write_text("no picture")
    (tmp_path / "b" / ".hidden.png").write_text("left by a Mac")
    (tmp_path / ".cache").mkdir()
    os.symlink(tmp_path, tmp_path / "b" / "circle")
    folder = ImageFolder(root, 8)
    assert folder.files == ["a/000.png", "a/001.png", "a/deeper/x.JPG", "b/000.png", "b/001.png"]
    assert str(folder.left_out) == (
        "1 .txt (b/notes.txt), 1 hidden (b/.hidden.png), 1 links to folders that were read (b/circle)"
    )


def test_pictures_of_other_formats_are_left_out_with_a_warning(tmp_path: Path) -> None:
    root = folder_of(tmp_path, ("a", "b"), 2)
    for name in ("1.HEIC", "2.heic", "3.avif", "4.txt"):
        (tmp_path / "a" / name).touch()
    said = r"left out of '.*': 1 \.avif \(a/3\.avif\), 2 \.heic \(a/1\.HEIC, a/2\.heic\)$"
    with pytest.warns(UserWarning, match=said) as caught:
        folder = ImageFolder(root, 8)
    assert caught[0].filename == __file__
    assert folder.left_out.counts == {".heic": 2, ".avif": 1, ".txt": 1}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(ImageFolder(root, 8, skip_broken=True)) == 4


def test_what_was_noted_stays_when_a_setting_changes(tmp_path: Path) -> None:
    folder = ImageFolder(folder_of(tmp_path, ("a", "b"), 2), 8)
    folder.notes.append("a note")
    folder.image_size = 4
    assert (folder.notes, folder[0][0].shape) == (["a note"], (3, 4, 4))


def test_what_is_wrong_with_a_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere"):
        load_folder(str(tmp_path / "nowhere"))
    with pytest.raises(ValueError, match="has no folders; expected one folder for each class"):
        load_folder(str(tmp_path))
    Image.new("RGB", (8, 8)).save(tmp_path / "loose.png")
    with pytest.raises(ValueError, match="has 1 images and no folder"):
        load_folder(str(tmp_path))
    with pytest.raises(NotADirectoryError, match=r"loose\.png' is a file"):
        load_folder(str(tmp_path / "loose.png"))
    (tmp_path / "a").mkdir()
    with pytest.raises(ValueError, match="there are no images below"):
        load_folder(str(tmp_path))
    folder_of(tmp_path, ("b",), 2)
    with pytest.raises(ValueError, match="/a' has no images: an empty class"):
        load_folder(str(tmp_path))
    (tmp_path / "a").rmdir()
    with pytest.raises(ValueError, match="only one class, 'b'"):
        load_folder(str(tmp_path))
    with pytest.raises(ValueError, match="has only one image for each class"):
        load_folder(folder_of(tmp_path / "few", ("a", "b"), 1))
    for wrong in ({"image_size": 0}, {"image_size": 2.5}, {"channels": 2}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ImageFolder(str(tmp_path / "few"), **wrong)


def test_broken_files_are_named_or_skipped_and_remembered(tmp_path: Path) -> None:
    root = folder_of(tmp_path, ("a", "b"), 3)
    (tmp_path / "a" / "001.png").write_bytes(b"no picture")
    (tmp_path / "b" / "002.png").unlink()
    (tmp_path / "b" / "002.png").symlink_to(tmp_path / "gone")
    with pytest.raises(BrokenImage, match=r"a/001\.png' is no readable picture"):
        list(DataLoader(ImageFolder(root, 8), 2))
    folder = ImageFolder(root, 8, skip_broken=True)
    batches = list(DataLoader(folder, 2))
    assert [labels.tolist() for _, labels in batches] == [[0], [0, 1], [1]]
    assert [images.shape[0] for images, _ in batches] == [1, 2, 1]
    assert [Path(name).name for name in folder.broken] == ["001.png", "002.png"]
    assert "there is no file" in list(folder.broken.values())[1]


def test_20_000_names_are_quick_and_take_no_pictures_into_memory(tmp_path: Path) -> None:
    """Files of no bytes: nothing may be opened before a batch is asked for. Then a few real ones, in little memory."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        descriptor = os.open(tmp_path / name, os.O_RDONLY)
        for i in range(10_000):
            os.close(os.open(f"{i:06}.png", os.O_CREAT | os.O_WRONLY, dir_fd=descriptor))
        os.close(descriptor)
    Image.fromarray(np.zeros((256, 256, 3), np.uint8)).save(tmp_path / "a" / "000000.png")
    for i in range(1, 400):
        (tmp_path / "a" / f"{i:06}.png").unlink()
        os.link(tmp_path / "a" / "000000.png", tmp_path / "a" / f"{i:06}.png")
    start = time.perf_counter()
    folder = ImageFolder(str(tmp_path), 128)
    seconds = time.perf_counter() - start
    assert len(folder) == 20_000
    assert seconds < 2, f"{seconds:.1f} s"  # 0.1 s on 2 cores
    loader = iter(DataLoader(folder, 8, sampler=range(400)))
    next(loader)
    tracemalloc.start()
    for _ in loader:
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6, f"{peak:,} bytes"  # 400 pictures are 79 MB as float32


def test_an_override_of_getitem_counts(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 8)).save(tmp_path / name / "0.png")

    class WithPath(ImageFolder):
        def __getitem__(self, index: int) -> Any:
            return *super().__getitem__(index), self.files[index]

    images, labels, files = next(iter(DataLoader(WithPath(tmp_path, 8), 2)))
    assert (images.shape, labels.tolist(), files) == ((2, 3, 8, 8), [0, 1], ["a/0.png", "b/0.png"])


def test_what_torchvisions_programs_set_is_an_error(tmp_path: Path) -> None:
    folder = ImageFolder(folder_of(tmp_path, each=1), 8)
    for name in ("samples", "imgs", "targets", "class_to_idx"):
        with pytest.raises(AttributeError, match=rf"ImageFolder\.{name}: there is no such setting; expected "):
            setattr(folder, name, None)


def wide_and_high(root: Path) -> np.ndarray:
    """Two classes of one picture each, 6 x 9; gives the pixels of the first, H x W x 3."""
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9, 3), np.uint8)
    for name, picture in (("a", pixels), ("b", pixels[::-1])):
        (root / name).mkdir()
        Image.fromarray(picture).save(root / name / "0.png")
    return pixels


def test_a_transform_gets_the_picture_as_the_file_has_it(tmp_path: Path) -> None:
    pixels = wide_and_high(tmp_path)
    steps = T.Compose([T.CenterCrop(4), T.ToTensor(), T.Normalize((0.5,) * 3, (0.25,) * 3)])
    folder = ImageFolder(tmp_path, transform=steps, target_transform=lambda label: 10 * label + 1)
    expected = ((pixels[1:5, 2:6].transpose(2, 0, 1) / 255.0) - 0.5) / 0.25  # torchvision cuts at round((9 - 4) / 2)
    image, label = folder[0]
    assert (image.shape, label) == ((3, 4, 4), 1)
    np.testing.assert_allclose(image.numpy(), expected, rtol=1e-5, atol=1e-6)
    images, labels = next(iter(DataLoader(folder, 2)))
    assert (images.shape, labels.tolist()) == ((2, 3, 4, 4), [1, 11])
    assert np.array_equal(images[0].numpy(), image.numpy())

    folder.transform = lambda picture: picture
    image, _ = folder[0]
    assert (image.dtype, image.shape) == (mn.uint8, (3, 6, 9))
    assert np.array_equal(image.numpy(), pixels.transpose(2, 0, 1))


def test_a_picture_that_is_whole_is_turned_upright_and_may_be_grey(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 9), np.uint8)
    exif = Image.Exif()
    exif[0x0112] = 6  # the first row is at the right
    Image.fromarray(pixels).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_image(tmp_path / "a.png", None, channels=1), np.rot90(pixels, -1)[None])


def test_a_transform_passes_over_broken_pictures_too(tmp_path: Path) -> None:
    wide_and_high(tmp_path)
    (tmp_path / "a" / "1.png").write_bytes((tmp_path / "a" / "0.png").read_bytes()[:60])
    folder = ImageFolder(tmp_path, skip_broken=True, transform=T.ToTensor())
    images, labels = next(iter(DataLoader(folder, 3)))
    assert (images.shape, labels.tolist()) == ((2, 3, 6, 9), [0, 1])
    assert list(folder.broken) == [str(tmp_path / "a" / "1.png")]


def test_torchvisions_attributes(tmp_path: Path) -> None:
    wide_and_high(tmp_path)
    folder = ImageFolder(tmp_path, 8)
    assert folder.class_to_idx == {"a": 0, "b": 1}
    assert folder.samples == folder.imgs == [(str(tmp_path / "a/0.png"), 0), (str(tmp_path / "b/0.png"), 1)]
    assert folder.targets == [0, 1]
    part = Subset(Subset(folder, [1]), [0])
    assert (part.classes, part.class_to_idx) == (["a", "b"], {"a": 0, "b": 1})
    with pytest.raises(
        AttributeError, match=r"no attribute 'files'; its dataset has this attribute: use subset\.dataset\.files"
    ):
        _ = Subset(folder, [0]).files
    with pytest.raises(AttributeError, match=r"Subset has no attribute 'classes'$"):
        _ = Subset([1, 2], [0]).classes
    assert len(pickle.loads(pickle.dumps(Subset([1, 2], [0])))) == len(copy.deepcopy(Subset([1, 2], [0]))) == 1


def test_a_transform_in_the_place_of_the_size(tmp_path: Path) -> None:
    wide_and_high(tmp_path)
    with pytest.raises(TypeError, match=r"pass a transform by name: ImageFolder\(root, transform=\.\.\.\)"):
        ImageFolder(tmp_path, T.ToTensor())
    with pytest.raises(TypeError, match=r"transform is a list; expected a function, or None; transforms\.Compose"):
        ImageFolder(tmp_path, transform=[T.ToTensor()])
