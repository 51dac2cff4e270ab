"""The digits example: convolutions, dropout, log_softmax, a loop over epochs with a schedule, an evaluation."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, Dataset


class Digits(Dataset):
    def __init__(self, count, transform=None):
        rng = np.random.default_rng(0)
        self.images = rng.random((count, 28, 28))
        self.labels = rng.integers(0, 10, count)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = torch.from_numpy(self.images[index]).unsqueeze(0)
        if self.transform is not None:
            image = self.transform(image)
        return image, int(self.labels[index])


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 8, 5)
        self.conv2 = nn.Conv2d(8, 16, kernel_size=3, padding=1)
        self.dropout1 = nn.Dropout2d(0.0)
        self.dropout2 = nn.Dropout(p=0.0)
        self.fc1 = nn.Linear(16 * 6 * 6, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.max_pool2d(F.relu(self.dropout1(self.conv2(x)), inplace=True), 2)
        x = x.view(-1, self.num_flat_features(x))
        x = self.dropout2(F.relu(self.fc1(x)))
        return F.log_softmax(self.fc2(x), dim=1)

    def num_flat_features(self, x):
        features = 1
        for s in x.size()[1:]:
            features *= s
        return features


def models():
    return {"model": Net()}


def train(model):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model.to(device)
    dataset = Digits(40, transform=lambda image: (image - 0.1307) / 0.3081)
    order = np.random.default_rng(1).permutation(40).tolist()
    loader = DataLoader(dataset, batch_size=8, sampler=order, num_workers=0, pin_memory=False)
    optimizer = optim.SGD(model.parameters(), lr=0.05, momentum=0.5)
    scheduler = StepLR(optimizer, step_size=1, gamma=0.7)

    losses = []
    for epoch in range(1, 3):
        model.train()
        for batch_idx, (data, target) in enumerate(loader):
            data, target = data.to(device, non_blocking=True), target.to(device)
            optimizer.zero_grad()
            output = model(data)
            loss = F.nll_loss(output, target)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        losses += test(model, device, DataLoader(dataset, batch_size=20, shuffle=False))
        scheduler.step()
    return losses


def test(model, device, loader):
    model.eval()
    test_loss = 0
    correct = 0
    with torch.no_grad():
        for data, target in loader:
            data, target = data.to(device), target.to(device)
            output = model(data)
            test_loss += F.nll_loss(output, target, reduction="sum").item()
            pred = output.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
            assert (output.max(1)[1] == pred.squeeze(1)).all()
            assert (torch.max(output.data, 1)[1] == output.max(1, keepdim=True)[1].view(-1)).all()
    test_loss /= len(loader.dataset)
    return [test_loss, correct / len(loader.dataset)]
