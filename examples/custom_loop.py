"""A custom training loop: parameter groups, a schedule, gradient clipping, gradients averaged over two half batches.

Needs: pip install scikit-learn.
"""

import numpy as np

import minorm as mn
import minorm.functional as F
from minorm import data, nn, optim

EPOCHS = 10


class SmallNet(nn.Module):
    """GroupNorm does not look at other images, so half batches give exactly the gradient of the whole one."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 3, padding=1, bias=False)
        self.norm1 = nn.GroupNorm(4, 16)
        self.conv2 = nn.Conv2d(16, 32, 3, padding=1, bias=False)
        self.norm2 = nn.GroupNorm(4, 32)
        self.head = nn.Linear(32 * 4, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm1(self.conv1(x))), 2)
        x = F.max_pool2d(F.relu(self.norm2(self.conv2(x))), 2)
        return self.head(x.flatten(1))


mn.manual_seed(0)
train, test = data.split_digits(seed=0)
loader = data.DataLoader(train, batch_size=64, shuffle=True, drop_last=True)
model = SmallNet()

decay = [p for p in model.parameters() if p.ndim > 1]
no_decay = [p for p in model.parameters() if p.ndim <= 1]  # biases, and scale and bias of the normalizations
optimizer = optim.AdamW([{"params": decay}, {"params": no_decay, "weight_decay": 0.0}], lr=0.005, weight_decay=0.01)
scheduler = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(loader))

for epoch in range(EPOCHS):
    total = 0.0
    for images, labels in loader:
        optimizer.zero_grad()
        for half in (slice(0, 32), slice(32, 64)):  # gradients add up until they are used
            loss = F.cross_entropy(model(images[half]), labels[half]) / 2
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        scheduler.step()
    print(f"epoch {epoch + 1:2}  loss {total / len(loader):.4f}")

images, labels = test[:]
with mn.no_grad():
    guesses = model.eval()(mn.tensor(images)).numpy().argmax(axis=1)
print(f"accuracy on {len(labels)} digits it has not seen: {np.mean(guesses == labels):.3f}")
