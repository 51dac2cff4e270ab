"""Fine-tuning: keep what a network learned on the digits 0 to 4, freeze it, and train a new head for 5 to 9.

freeze() makes a module a fixed function: no gradients, and its BatchNorms use and keep their running statistics,
whatever train() says. Needs: pip install scikit-learn.
"""

import numpy as np

import minorm as mn
from minorm import data, nn, optim
from minorm.models import digits_cnn
from minorm.training import evaluate, train_epoch


def only(dataset, digits):
    """The images of some digits, with the labels 0, 1, 2 ..."""
    images, labels = dataset[:]
    chosen = np.isin(labels, digits)
    return data.ArrayDataset(images[chosen], np.searchsorted(digits, labels[chosen]))


def train(model, parameters, train_set, test_set, epochs):
    loader = data.DataLoader(train_set, batch_size=32, shuffle=True, drop_last=True)
    optimizer, loss_function = optim.SGD(parameters, lr=0.05, momentum=0.9), nn.CrossEntropyLoss()
    for _ in range(epochs):
        train_epoch(model, loader, loss_function, optimizer)
    return evaluate(model, data.DataLoader(test_set, batch_size=256), loss_function)


mn.manual_seed(0)
train_set, test_set = data.split_digits(seed=0)
low, high = [0, 1, 2, 3, 4], [5, 6, 7, 8, 9]

model = digits_cnn(classes=5)
score = train(model, model.parameters(), only(train_set, low), only(test_set, low), epochs=10)
print(f"0 to 4, the whole network:   {score.accuracy:.3f}")

backbone, head = model[:-1], nn.Linear(256, 5)
backbone.freeze()
before = {key: value.numpy().copy() for key, value in backbone.state_dict().items()}
tuned = nn.Sequential(backbone, head)
score = train(tuned, head.parameters(), only(train_set, high), only(test_set, high), epochs=10)
print(f"5 to 9, only a new head:     {score.accuracy:.3f}")

unchanged = all(np.array_equal(value.numpy(), before[key]) for key, value in backbone.state_dict().items())
print(f"the frozen part kept every bit, running statistics too: {unchanged}")
