"""Segmentation: a U-Net marks, pixel by pixel, where a circle, a square or a triangle lies in a noisy picture.

On the way down, the images get smaller and each of their pixels sees more of the picture. The way up restores the size;
at each size it takes over what the way down computed there (Ronneberger et al. 2015, arXiv:1505.04597).
Needs: pip install matplotlib.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim

CLASSES = ["background", "circle", "square", "triangle"]
SIZE = 48

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--epochs", type=int, default=10)
options.add_argument("--images", type=int, default=600, help="pictures to train on (default 600)")
options.add_argument("-o", "--out", default="segmentation.png", help="the picture to write")


def draw(count, rng):
    """Noisy pictures with three shapes of any colour, and the class of every pixel; later shapes cover earlier ones."""
    images = np.full((count, 3, SIZE, SIZE), 0.5, np.float32)
    masks = np.zeros((count, SIZE, SIZE), np.int64)
    down, right = np.mgrid[:SIZE, :SIZE]
    for image, mask in zip(images, masks, strict=True):
        for kind in rng.integers(1, 4, 3):
            (y, x), radius = rng.integers(8, SIZE - 8, 2), rng.integers(5, 10)
            dy, dx = np.abs(down - y), np.abs(right - x)
            circle, square = dy**2 + dx**2 <= radius * (radius + 1), np.maximum(dy, dx) <= radius
            inside = (circle, square, square & (2 * dx <= down - y + radius))[kind - 1]
            image[:, inside] = rng.uniform(0, 1, (3, 1))
            mask[inside] = kind
    images += rng.normal(0, 0.1, images.shape).astype(np.float32)
    return data.ArrayDataset(images, masks)


def block(channels, width):
    """Two convolutions, each with BatchNorm and ReLU."""
    layers = []
    for inputs in (channels, width):
        layers += [nn.Conv2d(inputs, width, 3, padding=1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Two halvings and two doublings: images N x 3 x H x W become logits N x classes x H x W."""

    def __init__(self, classes, width=16):
        super().__init__()
        self.down1, self.down2, self.bottom = block(3, width), block(width, 2 * width), block(2 * width, 4 * width)
        self.up2, self.up1 = (nn.ConvTranspose2d(2 * w, w, 2, stride=2) for w in (2 * width, width))
        self.join2, self.join1 = block(4 * width, 2 * width), block(2 * width, width)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        fine = self.down1(x)
        coarse = self.down2(F.max_pool2d(fine, 2))
        x = self.up2(self.bottom(F.max_pool2d(coarse, 2)))
        x = self.up1(self.join2(mn.cat([coarse, x], dim=1)))
        return self.head(self.join1(mn.cat([fine, x], dim=1)))


def overlap(guesses, masks):
    """Intersection over union of each class: 1 where every pixel is right."""
    pairs = [(guesses == kind, masks == kind) for kind in range(len(CLASSES))]
    return [np.sum(guess & mask) / np.sum(guess | mask) for guess, mask in pairs]


args = options.parse_args()
mn.manual_seed(0)
rng = np.random.default_rng(0)
train, (images, masks) = draw(args.images, rng), draw(60, rng)[:]
loader = data.DataLoader(train, batch_size=8, shuffle=True, drop_last=True)
model = UNet(len(CLASSES))
optimizer = optim.AdamW(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=args.epochs * len(loader))

for epoch in range(args.epochs):
    total = 0.0
    for batch, labels in loader:
        loss = F.cross_entropy(model(batch), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        total += loss.item()
    print(f"epoch {epoch + 1:2}  loss {total / len(loader):.4f}")

with mn.no_grad():
    guesses = model.eval()(mn.tensor(images)).argmax(1).numpy()
shares = overlap(guesses, masks)
for name, share in zip(CLASSES, shares, strict=True):
    print(f"{name:10}  intersection over union {share:.3f}")
print(f"mean of the shapes: {np.mean(shares[1:]):.3f}")

figure = Figure(figsize=(7, 4.3), layout="constrained")
for axes in (grid := figure.subplots(3, 5)).flat:
    axes.set(xticks=[], yticks=[])
for row, (name, pictures) in enumerate({"image": images, "truth": masks, "found": guesses}.items()):
    grid[row, 0].set_ylabel(name)
    for axes, picture in zip(grid[row], pictures, strict=False):
        if picture.ndim == 3:
            axes.imshow(picture.transpose(1, 2, 0).clip(0, 1), interpolation="nearest")
        else:
            axes.imshow(picture, cmap="viridis", vmin=0, vmax=len(CLASSES) - 1, interpolation="nearest")
figure.savefig(args.out, dpi=70)
print(f"wrote {args.out}")
