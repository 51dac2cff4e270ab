"""How sharp is the minimum? The largest eigenvalue of a loss's Hessian, by power iteration, before and after training.

The Hessian of a network with 20,000 parameters has 400 million elements, and the program never stores it. The product
H v with a vector v is the gradient of <gradient, v>, and takes two walks through the graph. The iteration multiplies v
by H until its direction no longer changes. The part of H v that is not along v shows how exact the result is.
Needs: pip install scikit-learn.
"""

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim
from minorm.models import digits_cnn
from minorm.training import train_epoch

mn.manual_seed(0)
train, _ = data.split_digits(seed=0)
images, labels = (mn.tensor(a) for a in train[:256])
model = digits_cnn()
parameters = list(model.parameters())


def times_hessian(v):
    """H v, of the loss of 256 digits, for one array a parameter."""
    model.eval()  # with running statistics, so that the loss is a function of the parameters alone
    loss = F.cross_entropy(model(images), labels)
    gradients = mn.autograd.grad(loss, parameters, create_graph=True)
    product = sum((g * mn.tensor(part)).sum() for g, part in zip(gradients, v, strict=True))
    return [g.numpy() for g in mn.autograd.grad(product, parameters)]


def inner(a, b):
    return sum(float(np.vdot(x.astype(np.float64), y)) for x, y in zip(a, b, strict=True))


def largest_eigenvalue(steps=20):
    """The eigenvalue, and the share of H v that does not lie along v."""
    rng = np.random.default_rng(0)
    v = [rng.standard_normal(p.shape).astype(np.float32) for p in parameters]
    for _ in range(steps):
        length = np.sqrt(inner(v, v))
        v = [part / np.float32(length) for part in v]
        product = times_hessian(v)
        eigenvalue = inner(v, product)
        beside = [a - np.float32(eigenvalue) * b for a, b in zip(product, v, strict=True)]
        rest = np.sqrt(inner(beside, beside) / inner(product, product))
        v = product
    return eigenvalue, rest


def tell(when):
    eigenvalue, rest = largest_eigenvalue()
    with mn.no_grad():
        loss = F.cross_entropy(model(images), labels).item()
    print(f"{when}: loss {loss:.3f}, largest eigenvalue {eigenvalue:8.3f}, beside its vector {rest:.3f}")


loader = data.DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
optimizer = optim.SGD(parameters, lr=0.05, momentum=0.9)
train_epoch(model, loader, nn.CrossEntropyLoss(), optimizer)
tell("after 1 epoch  ")
for _ in range(5):
    train_epoch(model, loader, nn.CrossEntropyLoss(), optimizer)
tell("after 6 epochs ")
