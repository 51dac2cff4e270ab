"""Your own images: a folder of pictures becomes a model, a report of what it gets wrong, and predictions.

The example draws its folder itself, one folder a class, as JPEG files of several sizes; put your own in its place with
--path. This program does in Python what `minorm train --path` does in one command, so that you can change it.
Needs: pip install pillow matplotlib.
"""

import argparse
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim, plots
from minorm.training import predict, train_epoch

SHAPES = {"circle": 60, "triangle": 3, "square": 4}  # corners

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--path", help="a folder with one folder of pictures a class (default: shapes are drawn)")
options.add_argument("--epochs", type=int, default=12)
options.add_argument("--images", type=int, default=120, help="pictures to draw of each class (default 120)")
options.add_argument("--image-size", type=int, default=32)
options.add_argument("-o", "--out", default="own_images.png", help="the picture to write")


def draw_folder(root, count, rng):
    """root/circle/000.jpg and so on: a dark shape of any size, place and turn on a light background."""
    for name, corners in SHAPES.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for number in range(count):
            width, height = (int(side) for side in rng.integers(80, 120, 2))
            light, dark = (tuple(rng.integers(low, low + 100, 3).tolist()) for low in (155, 20))
            image = Image.new("RGB", (width, height), light)
            circle = (width / 2 + rng.uniform(-8, 8), height / 2 + rng.uniform(-8, 8), rng.uniform(20, 32))
            ImageDraw.Draw(image).regular_polygon(circle, corners, int(rng.integers(-20, 21)), fill=dark)
            image.save(root / name / f"{number:03}.jpg")


def build(classes, width=16):
    """Three convolutions with BatchNorm, and the mean over the picture: any image size will do."""
    layers = []
    for inputs, outputs in ((3, width), (width, 2 * width), (2 * width, 4 * width)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * width, classes))


args = options.parse_args()
mn.manual_seed(0)
if args.path is None:
    args.path = Path(args.out).with_suffix("")
    draw_folder(args.path, args.images, np.random.default_rng(0))

train, val = data.load_folder(args.path, image_size=args.image_size)  # a fifth of each class is set aside
folder = train.dataset
print(f"{len(train)} pictures to train, {len(val)} to validate, classes {', '.join(folder.classes)}")
scale = data.Normalize(0.5, 0.25)
transform = data.Compose([data.RandomCrop(args.image_size, padding=2), data.RandomHorizontalFlip(), scale])
loader = data.DataLoader(train, 16, shuffle=True, drop_last=True, transform=transform, num_workers=2)
tests = data.DataLoader(val, 64, transform=scale)

model, loss_function = build(len(folder.classes)), nn.CrossEntropyLoss()
optimizer = optim.AdamW(model.parameters(), lr=0.01)
scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.01, total_steps=args.epochs * len(loader))
for epoch in range(args.epochs):
    trained = train_epoch(model, loader, loss_function, optimizer, scheduler)
    print(f"epoch {epoch + 1:2}  loss {trained.loss:.4f}  training accuracy {trained.accuracy:.3f}")
mn.save(model.state_dict(), Path(args.out).with_suffix(".safetensors"))

logits, labels = zip(*((predict(model, images).numpy(), labels.numpy()) for images, labels in tests), strict=True)
guesses, labels = np.concatenate(logits).argmax(1), np.concatenate(labels)
matrix = np.zeros((len(folder.classes), len(folder.classes)), int)  # rows are classes, columns what they are taken for
np.add.at(matrix, (labels, guesses), 1)
accuracy = np.mean(guesses == labels)
plots.confusion(matrix, folder.classes, f"{accuracy:.1%} of {len(val)} are right").savefig(args.out, dpi=80)
print(f"wrote {args.out}")

for index in val.indices[:: max(1, len(val) // 4)]:  # any file will do
    pixels = data.read_image(folder.path(index), args.image_size)[np.newaxis] / np.float32(255)
    shares = F.softmax(predict(model, mn.tensor(scale(pixels))), dim=1).numpy()[0]
    print(f"{folder.path(index)}: {folder.classes[shares.argmax()]}, {shares.max():.0%}")
print(f"accuracy on pictures set aside: {accuracy:.3f}")
