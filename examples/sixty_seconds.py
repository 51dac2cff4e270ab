"""Sixty seconds of minorm: define, train, export, verify. The README's program, letter by letter."""

import minorm as mn
import minorm.functional as F
import minorm.onnx
from minorm import nn, optim
from minorm.data import DataLoader, split_digits

mn.manual_seed(0)
train, test = split_digits(seed=0)  # 1,797 handwritten digits, 8 x 8 pixels, from scikit-learn's wheel

model = nn.Sequential(
    nn.Conv2d(1, 16, 3, padding=1, bias=False),
    nn.BatchNorm2d(16),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Conv2d(16, 32, 3, padding=1, bias=False),
    nn.BatchNorm2d(32),
    nn.ReLU(),
    nn.MaxPool2d(2),
    nn.Flatten(),
    nn.Linear(128, 10),
)
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for epoch in range(10):
    for images, labels in DataLoader(train, batch_size=64, shuffle=True, seed=epoch):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

model.eval()
images, labels = next(iter(DataLoader(test, batch_size=len(test))))
with mn.no_grad():
    logits = model(images)
print("accuracy", (logits.argmax(1) == labels).float().mean().item())

mn.save(model.state_dict(), "digits.safetensors")
minorm.onnx.export(model, images, "digits.onnx", verify=True)  # runs the file in onnxruntime and compares
