"""Sixty seconds of minorm: define, train, export, verify. Needs: pip install "minorm[demo]"."""

import minorm as mn
import minorm.onnx
from minorm import data, nn, optim

mn.manual_seed(0)
train, test = data.split_digits(seed=0)  # 1,797 handwritten digits, 8 x 8 pixels, in scikit-learn's wheel
loader = data.DataLoader(train, batch_size=64, shuffle=True)

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
loss_function = nn.CrossEntropyLoss()
optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

for _ in range(10):
    for images, labels in loader:
        loss = loss_function(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

images, labels = map(mn.tensor, test[:])
model.eval()
accuracy = (model(images).argmax(dim=1) == labels).numpy().mean()
print(f"accuracy on {len(labels)} digits it has not seen: {accuracy:.3f}")

mn.save(model.state_dict(), "digits.safetensors")
minorm.onnx.export(model, images, "digits.onnx")
print(minorm.onnx.verify("digits.onnx", [images], [model(images)]))
