"""Reading: a CRNN reads strips of three to six handwritten digits, without being told where each digit lies.

Convolutions turn a strip into a row of features. A bidirectional GRU reads along the row in both directions. CTC sums
over all alignments of the row with the text (Shi et al. 2015, arXiv:1507.05717). Each column gives a digit or a blank;
the program first drops repeats, then blanks. Needs: pip install scikit-learn matplotlib.
"""

import argparse

import numpy as np
from matplotlib.figure import Figure

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim

BLANK, WIDTH = 10, 64  # digits are the classes 0 to 9

options = argparse.ArgumentParser(description=__doc__)
options.add_argument("--steps", type=int, default=400)
options.add_argument("--batch-size", type=int, default=32)
options.add_argument("-o", "--out", default="read_digits.png", help="the picture to write")


def strips(digits, count, rng):
    """Images count x 1 x 8 x 64 of digits side by side, at gaps drawn anew, with noise; and the texts they show."""
    pictures, labels = digits
    images, texts = np.zeros((count, 1, 8, WIDTH), np.float32), []
    for image in images:
        chosen = rng.integers(0, len(labels), rng.integers(3, 7))
        place = rng.integers(0, 5)
        for picture in pictures[chosen]:
            image[0, :, place : place + 8] = picture[0]
            place += 8 + rng.integers(0, 3)
        texts.append(labels[chosen])
    return images + rng.normal(0, 0.05, images.shape).astype(np.float32), texts


class CRNN(nn.Module):
    """Images N x 1 x 8 x W become log probabilities W/2 x N x 11: a distribution for every second column."""

    def __init__(self, width=32):
        super().__init__()
        self.look = nn.Sequential(
            nn.Conv2d(1, width, 3, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(width, 2 * width, 3, padding=1, bias=False),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
        )
        self.read = nn.GRU(2 * width * 4, 2 * width, bidirectional=True)
        self.spell = nn.Linear(4 * width, 11)

    def forward(self, x):
        features = self.look(x).permute(3, 0, 1, 2).flatten(2)  # columns first, as a GRU wants it
        return F.log_softmax(self.spell(self.read(features)[0]), dim=2)


def decode(log_probs):
    """The most probable class of each column, without repeats and blanks."""
    best = log_probs.argmax(2).numpy().T
    return [row[(row != BLANK) & (row != np.concatenate([[-1], row[:-1]]))] for row in best]


args = options.parse_args()
mn.manual_seed(0)
rng = np.random.default_rng(0)
train, test = (part[:] for part in data.split_digits(seed=0))  # the digits of the test strips are new as well
model = CRNN()
optimizer = optim.AdamW(model.parameters(), lr=0.005)
scheduler = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.005, total_steps=args.steps)

for step in range(1, args.steps + 1):
    images, texts = strips(train, args.batch_size, rng)
    log_probs = model(mn.tensor(images))
    columns, lengths = np.full(len(texts), len(log_probs)), np.array([len(text) for text in texts])
    loss = F.ctc_loss(log_probs, mn.tensor(np.concatenate(texts)), mn.tensor(columns), mn.tensor(lengths), blank=BLANK)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    scheduler.step()
    if step % 50 == 0:
        print(f"step {step:4}  loss {loss.item():.4f}")

images, texts = strips(test, 200, rng)
with mn.no_grad():
    found = decode(model.eval()(mn.tensor(images)))
right = [np.array_equal(guess, text) for guess, text in zip(found, texts, strict=True)]
print(f"strips read without any mistake: {np.mean(right):.3f}")

figure = Figure(figsize=(7, 5), layout="constrained")
for axes, image, guess, text in zip(figure.subplots(6, 2).flat, images, found, texts, strict=False):
    axes.imshow(image[0], cmap="gray_r", vmin=0, vmax=1)
    read, shown = ("".join(map(str, digits)) for digits in (guess, text))
    axes.set(xticks=[], yticks=[])
    axes.set_title(f"read {read}" + ("" if read == shown else f", is {shown}"), fontsize=10)
figure.savefig(args.out, dpi=90)
print(f"wrote {args.out}")
