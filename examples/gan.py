"""A GAN: two networks play against each other, and one of them learns to draw digits.

The generator makes an 8 x 8 picture from 32 random numbers. The discriminator learns to tell drawn digits from
handwritten ones. The generator learns to draw digits that the discriminator takes for real (Goodfellow et al. 2014,
arXiv:1406.2661; convolutions and BatchNorm as in Radford et al. 2015, arXiv:1511.06434). Neither loss shows how good
the pictures are. So a third network, a classifier that takes no part in this training, judges the pictures: how sure is
it of a digit, and does each digit appear? Needs: pip install scikit-learn matplotlib.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from minorm.models import digits_cnn
from minorm.training import predict, train_epoch

NOISE = 32

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--epochs", type=int, default=40)
options.add_argument("-o", "--out", default="gan.png", help="the picture to write")

args = options.parse_args()
mn.manual_seed(0)
digits = data.load_digits()
loader = data.DataLoader(digits, batch_size=64, shuffle=True, drop_last=True)

generator = nn.Sequential(
    nn.Linear(NOISE, 128 * 4, bias=False),
    nn.Unflatten(1, (128, 2, 2)),
    nn.BatchNorm2d(128),
    nn.ReLU(),
    nn.ConvTranspose2d(128, 64, 4, stride=2, padding=1, bias=False),
    nn.BatchNorm2d(64),
    nn.ReLU(),
    nn.ConvTranspose2d(64, 1, 4, stride=2, padding=1),
    nn.Sigmoid(),
)
discriminator = nn.Sequential(
    nn.Conv2d(1, 64, 4, stride=2, padding=1),
    nn.LeakyReLU(0.2),
    nn.Conv2d(64, 128, 4, stride=2, padding=1, bias=False),
    nn.BatchNorm2d(128),
    nn.LeakyReLU(0.2),
    nn.Flatten(),
    nn.Linear(128 * 4, 1),
)
generator_optimizer = optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
discriminator_optimizer = optim.Adam(discriminator.parameters(), lr=0.001, betas=(0.5, 0.999))


def step(optimizer, loss):
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def play(real):
    """One move of each; returns the two losses."""
    ones, zeros = mn.ones(len(real), 1), mn.zeros(len(real), 1)
    drawn = generator(mn.randn(len(real), NOISE))
    loss = F.binary_cross_entropy_with_logits(discriminator(real), 0.9 * ones)  # 0.9: never quite sure
    loss = loss + F.binary_cross_entropy_with_logits(discriminator(drawn.detach()), zeros)  # no gradient to drawn
    first = step(discriminator_optimizer, loss)
    second = step(generator_optimizer, F.binary_cross_entropy_with_logits(discriminator(drawn), ones))
    return first, second


for epoch in range(args.epochs):
    losses = np.mean([play(real) for real, _ in loader], axis=0)
    if epoch % 5 == 4:
        print(f"epoch {epoch + 1:2}  discriminator {losses[0]:.3f}  generator {losses[1]:.3f}")

judge = digits_cnn()
judge_optimizer = optim.SGD(judge.parameters(), lr=0.05, momentum=0.9)
for _ in range(5):
    train_epoch(judge, loader, nn.CrossEntropyLoss(), judge_optimizer)


def judged(pictures):
    """How sure the classifier is on average, and the share of the rarest digit."""
    probabilities = F.softmax(predict(judge, mn.tensor(pictures)), dim=1).numpy()
    shares = np.bincount(probabilities.argmax(1), minlength=10) / len(pictures)
    return f"sure of a digit {probabilities.max(1).mean():.3f}, rarest digit {shares.min():.3f}"


drawn = predict(generator, mn.randn(1000, NOISE)).numpy()
print(f"handwritten:  {judged(digits[:][0])}")
print(f"noise:        {judged(np.random.default_rng(0).random((1000, 1, 8, 8), np.float32))}")
print(f"drawn:        {judged(drawn)}")

figure = Figure(figsize=(8, 4), layout="constrained")
for part, title, pictures in zip(
    figure.subfigures(1, 2), ("handwritten", "drawn"), (digits[:64][0], drawn), strict=True
):
    part.suptitle(title)
    for axes, picture in zip(part.subplots(8, 8).flat, pictures, strict=False):
        axes.imshow(picture[0], cmap="gray_r", vmin=0, vmax=1)
        axes.set_axis_off()
figure.savefig(args.out, dpi=80)
print(f"wrote {args.out}")
