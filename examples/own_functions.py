"""Custom Functions in a model: one reverses a gradient, the other passes a gradient through a step function.

The first model is a classifier whose features must not show whether a picture is a negative. Half of the digits are
negatives. A second head predicts which ones are, and Reverse turns the sign of the gradient that this head sends to the
features (Ganin and Lempitsky 2015, arXiv:1409.7495). So the head learns to find negatives while the features learn to
hide them. The second model is an autoencoder with a code of bits. The derivative of rounding is 0, so Bits passes the
gradient on unchanged (Bengio et al. 2013, arXiv:1308.3432). Needs: pip install scikit-learn.
"""

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim


class Reverse(mn.autograd.Function):
    """The identity; backward reverses the gradient's sign and makes it smaller."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, dy):
        return -0.3 * dy


class Bits(mn.autograd.Function):
    """0 or 1, with the gradient of the identity."""

    @staticmethod
    def forward(ctx, x):
        return (x > 0.5).float()

    @staticmethod
    def backward(ctx, dy):
        return dy


mn.manual_seed(0)
train, test = data.split_digits(seed=0)


def flat(part):
    images, labels = part[:]
    return images.reshape(len(images), -1).astype(np.float32), labels


def batches(images, *others, epochs):
    rng = np.random.default_rng(0)
    for _ in range(epochs):
        order = rng.permutation(len(images))
        for start in range(0, len(order) - 63, 64):
            yield [mn.tensor(a[order[start : start + 64]]) for a in (images, *others)]


def domains(images):
    """The images, every second one as its negative, and which these are."""
    negative = np.arange(len(images)) % 2
    return np.where(negative[:, None], images.max() - images, images), negative


def hidden_domain(reverse):
    """The accuracy of both heads, with or without the gradient turned round."""
    mn.manual_seed(0)
    features = nn.Sequential(nn.Linear(64, 64), nn.LayerNorm(64), nn.ReLU(), nn.Linear(64, 32), nn.LayerNorm(32))
    digit, domain = nn.Linear(32, 10), nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 2))
    parameters = [*features.parameters(), *digit.parameters(), *domain.parameters()]
    optimizer = optim.Adam(parameters, lr=0.003)
    images, labels = flat(train)
    images, negative = domains(images)
    for x, y, d in batches(images, labels, negative, epochs=30):
        h = features(x)
        told = domain(Reverse.apply(h) if reverse else h.detach())
        optimizer.zero_grad()
        (F.cross_entropy(digit(h), y) + F.cross_entropy(told, d)).backward()
        optimizer.step()
    images, labels = flat(test)
    images, negative = domains(images)
    with mn.no_grad():
        h = features(mn.tensor(images))
        right = [np.mean(head(h).numpy().argmax(1) == of) for head, of in ((digit, labels), (domain, negative))]
    print(f"{'turned round' if reverse else 'as it is    '}: digits {right[0]:.3f}, negatives told {right[1]:.3f}")


def code_of_bits():
    """Digits through 24 bits and back: the share of their variance that is left as error."""
    encoder = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 24), nn.Sigmoid())
    decoder = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 64))
    optimizer = optim.Adam([*encoder.parameters(), *decoder.parameters()], lr=0.003)
    images, _ = flat(train)
    for (x,) in batches(images, epochs=40):
        optimizer.zero_grad()
        F.mse_loss(decoder(Bits.apply(encoder(x))), x).backward()
        optimizer.step()
    images, _ = flat(test)
    with mn.no_grad():
        found = decoder(Bits.apply(encoder(mn.tensor(images)))).numpy()
    print(f"24 bits a digit: error {np.mean((found - images) ** 2) / images.var(0).mean():.3f} of the variance")


hidden_domain(reverse=False)
hidden_domain(reverse=True)
code_of_bits()
