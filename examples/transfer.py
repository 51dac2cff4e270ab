"""Transfer learning: take a network from an ONNX file, give it a new head, and teach it a new task with 100 images.

A network learns to name digits anywhere in a noisy picture. The program exports it as an ONNX file, which could come
from any framework, and loads the part of the file before the last layer. With ten images of each digit, this part and a
new head learn to tell odd digits from even ones in poor light. In the first training, BatchNorm is frozen and keeps the
statistics of the file, as is usual with batches of four. In the second, its statistics become those of the new light.
Without the file, the network learns less from the same images. Needs: pip install scikit-learn onnx matplotlib.
"""

import argparse

import numpy as np
import onnx
from matplotlib.figure import Figure

import minorm as mn
import minorm.onnx
from minorm import data, nn, optim
from minorm.models import digits_cnn
from minorm.training import evaluate, train_epoch

SIZE = 16

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--first-epochs", type=int, default=15, help="of the network in the file (default 15)")
options.add_argument("--epochs", type=int, default=15, help="of each of the two stages (default 15)")
options.add_argument("-o", "--out", default="transfer.png", help="the picture to write; the ONNX file lies beside it")


def place(digits, rng, times=1):
    """Noisy pictures of 16 x 16 pixels, each with a digit anywhere in it; and its label."""
    small, labels = (np.repeat(array, times, axis=0) for array in digits)
    images = rng.normal(0, 0.1, (len(small), 1, SIZE, SIZE)).astype(np.float32)
    for image, digit, (y, x) in zip(images, small, rng.integers(0, 9, (len(small), 2)), strict=True):
        image[:, y : y + 8, x : x + 8] += digit
    return images, labels


def odd_or_even(digits, each, rng):
    """So many pictures of each digit, pale and grey, with the labels 0 (even) and 1 (odd)."""
    chosen = np.concatenate([np.flatnonzero(digits[1] == digit)[:each] for digit in range(10)])
    images, labels = place([array[chosen] for array in digits], rng)
    return data.ArrayDataset(0.3 + 0.5 * images, labels % 2)


def train(model, train_set, test_set, batch_size, lr, epochs):
    """The test accuracy after each epoch."""
    loader = data.DataLoader(train_set, batch_size, shuffle=True, drop_last=True)
    optimizer = optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    curve = []
    for _ in range(epochs):
        train_epoch(model, loader, nn.CrossEntropyLoss(), optimizer)
        curve.append(evaluate(model, data.DataLoader(test_set, 256), nn.CrossEntropyLoss()).accuracy)
    return curve


args = options.parse_args()
mn.manual_seed(0)
rng = np.random.default_rng(0)
train_digits, test_digits = (part[:] for part in data.split_digits(seed=0))

path = args.out.removesuffix(".png") + ".onnx"
many, tests = (data.ArrayDataset(*place(*of)) for of in ((train_digits, rng, 4), (test_digits, rng)))
first = digits_cnn(size=SIZE)
named = train(first, many, tests, batch_size=64, lr=0.02, epochs=args.first_epochs)
print(f"the ten digits, network of the file:  {named[-1]:.3f}")
minorm.onnx.export(first, mn.zeros(1, 1, SIZE, SIZE), path)

few, tests = odd_or_even(train_digits, 10, rng), odd_or_even(test_digits, 30, rng)
features = onnx.load(path).graph.node[-1].input[0]  # what the last layer reads: every value of a graph has a name
backbone = minorm.onnx.load(path, outputs=[features])  # cut there, the last layer is gone
tuned = nn.Sequential(backbone, nn.Linear(backbone(mn.zeros(1, 1, SIZE, SIZE)).shape[1], 2))

nn.utils.freeze_norm(tuned)
frozen = train(tuned, few, tests, batch_size=4, lr=0.002, epochs=args.epochs)
tuned.unfreeze()
thawed = train(tuned, few, tests, batch_size=10, lr=0.005, epochs=args.epochs)
scratch = train(digits_cnn(size=SIZE, classes=2), few, tests, batch_size=10, lr=0.01, epochs=2 * args.epochs)
print(f"odd or even, without the file:        {scratch[-1]:.3f}")
print(f"odd or even, BatchNorm frozen:        {frozen[-1]:.3f}")
print(f"odd or even, BatchNorm trained too:   {thawed[-1]:.3f}")

figure = Figure(figsize=(7, 3.5), layout="constrained")
axes = figure.subplots()
epochs = range(1, 2 * args.epochs + 1)
axes.plot(epochs, frozen + thawed, label="from the file")
axes.plot(epochs, scratch, "--", label="without the file")
axes.axvline(args.epochs + 0.5, color="0.6", linestyle=":", label="BatchNorm frozen before, trained after")
axes.set(xlabel="epoch", ylabel="accuracy", title="Odd or even, learned from 100 images", ylim=(0.4, 1))
axes.legend(loc="upper left")
figure.savefig(args.out, dpi=80)
print(f"wrote {args.out}")
