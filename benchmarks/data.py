"""Images a second: minorm's DataLoader and PyTorch's, on the same files with the same decoding and augmentation.

    python -m benchmarks.data [--images 1024] [--workers 0 2] [--rounds 5]

Two folders are made of random pictures: JPEG of 224 pixels, read at 224, and PNG of 32, read at 32. Both loaders
shuffle, decode with `read_image` (Pillow), normalize, crop with a padding and mirror at random, in batches of 64. Ours
augments a batch at once, in threads; PyTorch's calls the same transforms on each image, in processes, which are kept
from epoch to epoch. Epochs of the two take turns; the first of each is not counted. `first` is the time to the first
batch of a new loader, processes that start included.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils import data as torch_data

import minorm as mn
from minorm.data import Compose, DataLoader, ImageFolder, Normalize, RandomCrop, RandomHorizontalFlip

BATCH = 64
CASES = (("JPEG", 224, ".jpg"), ("PNG", 32, ".png"))


def pictures(root: Path, count: int, size: int, ending: str) -> None:
    """Write pictures of two classes: smooth colours with a little noise, as in photographs."""
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
    for i in range(count):
        rng = np.random.default_rng(i)
        coarse = Image.fromarray(rng.integers(0, 256, (7, 7, 3), np.uint8)).resize(
            (size, size), Image.Resampling.BICUBIC
        )
        noisy = np.asarray(coarse).astype(int) + rng.integers(-8, 9, (size, size, 3))
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(root / "ab"[i % 2] / f"{i:06}{ending}")


def augmentation(size: int) -> Compose:
    return Compose(
        [
            Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
            RandomCrop(size, padding=size // 8),
            RandomHorizontalFlip(),
        ]
    )


class Single(torch_data.Dataset):  # type: ignore[type-arg]
    """A dataset that reads one image at a time, as PyTorch does."""

    def __init__(self, folder: ImageFolder) -> None:
        self.folder, self.transform = folder, augmentation(folder.image_size)

    def __len__(self) -> int:
        return len(self.folder)

    def __getitem__(self, index: int) -> Any:
        image, label = self.folder[index]
        generator = np.random.default_rng(int(torch.randint(1 << 62, ())))
        return torch.from_numpy(np.ascontiguousarray(self.transform(image, generator))), int(label)


def loaders(root: str, size: int, workers: int) -> dict[str, Any]:
    folder = ImageFolder(root, size)
    ours = DataLoader(folder, BATCH, shuffle=True, transform=augmentation(size), num_workers=workers, seed=0)
    theirs = torch_data.DataLoader(
        Single(folder), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0
    )
    return {"minorm": ours, "torch": theirs}


def epoch(loader: Any) -> tuple[float, float]:
    """Return (seconds to the first batch, seconds in all)."""
    start = time.perf_counter()
    first = 0.0
    for _ in loader:
        first = first or time.perf_counter() - start
    return first, time.perf_counter() - start


def measured(make: Callable[[], dict[str, Any]], rounds: int) -> dict[str, tuple[float, float]]:
    """Return, by name, the time to the first batch and the median seconds of an epoch."""
    for loader in make().values():  # else the first loader would pay for Pillow's imports and the first pages of memory
        next(iter(loader))
    made = make()
    first = {name: epoch(loader)[0] for name, loader in made.items()}
    times: dict[str, list[float]] = {name: [] for name in made}
    for _ in range(rounds):
        for name, loader in made.items():
            times[name].append(epoch(loader)[1])
    return {name: (first[name], statistics.median(times[name])) for name in made}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{mn.get_num_threads()} cores, batches of {BATCH}, {args.images} images, median of {args.rounds} epochs")
    print(f"{'files':12} {'workers':>7}  {'minorm':>18}  {'torch':>18}  {'ratio':>6}")
    for kind, size, ending in CASES:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder) / "images"
            pictures(root, args.images, size, ending)
            for workers in args.workers:
                found = measured(lambda: loaders(str(root), size, workers), args.rounds)  # noqa: B023  called at once
                speed = {name: args.images / seconds for name, (_, seconds) in found.items()}
                cells = [f"{speed[name]:8,.0f}/s {1000 * found[name][0]:5.0f} ms" for name in ("minorm", "torch")]
                ratio = speed["minorm"] / speed["torch"]
                print(f"{size} px {kind:5} {workers:7}  {cells[0]:>18}  {cells[1]:>18}  {ratio:6.2f}", flush=True)


if __name__ == "__main__":
    main()
