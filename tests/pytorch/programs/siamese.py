"""One network for two pictures: distances of pairs and triplets, with a loss that is a separate Module."""

import random

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, Dataset


class PairDataset(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.images = rng.random((10, 1, 20, 20))
        self.pairs = rng.integers(0, 10, (count, 2))

    def __getitem__(self, index):
        first, second = self.pairs[index]
        label = np.array([int(first % 3 != second % 3)], dtype=np.float64)
        return torch.from_numpy(self.images[first]), torch.from_numpy(self.images[second]), torch.from_numpy(label)

    def __len__(self):
        return len(self.pairs)


class SiameseNetwork(nn.Module):
    def __init__(self):
        super(SiameseNetwork, self).__init__()
        self.cnn1 = nn.Sequential(
            nn.ReflectionPad2d(1),
            nn.Conv2d(1, 4, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(4),
            nn.Dropout2d(p=0.0),
            nn.MaxPool2d(2, stride=2),
            nn.ReflectionPad2d(1),
            nn.Conv2d(4, 8, kernel_size=3),
            nn.ReLU(inplace=True),
            nn.BatchNorm2d(8),
        )
        self.fc1 = nn.Sequential(
            nn.Linear(8 * 10 * 10, 32),
            nn.ReLU(inplace=True),
            nn.Linear(32, 5),
        )

    def forward_once(self, x):
        output = self.cnn1(x)
        output = output.view(output.size()[0], -1)
        output = self.fc1(output)
        return output

    def forward(self, input1, input2):
        return self.forward_once(input1), self.forward_once(input2)


class ContrastiveLoss(torch.nn.Module):
    def __init__(self, margin=2.0):
        super(ContrastiveLoss, self).__init__()
        self.margin = margin

    def forward(self, output1, output2, label):
        euclidean_distance = F.pairwise_distance(output1, output2, keepdim=True)
        return torch.mean(
            (1 - label) * torch.pow(euclidean_distance, 2)
            + label * torch.pow(torch.clamp(self.margin - euclidean_distance, min=0.0), 2)
        )


def models():
    random.seed(0)
    torch.manual_seed(0)
    return {"net": SiameseNetwork()}


def train(net):
    loader = DataLoader(PairDataset(60), shuffle=False, num_workers=0, batch_size=6)
    contrastive, triplet = ContrastiveLoss(), nn.TripletMarginLoss(margin=1.0, p=2)
    cosine = nn.CosineEmbeddingLoss(margin=0.1)
    optimizer = torch.optim.Adam(net.parameters(), lr=0.0005)
    losses = []
    for img0, img1, label in loader:
        img0, img1, label = Variable(img0), Variable(img1), Variable(label)
        output1, output2 = net(img0, img1)
        optimizer.zero_grad()
        loss = contrastive(output1, output2, label)
        loss = loss + 0.1 * triplet(output1, output2, torch.roll(output2, 1, 0))
        loss = loss + 0.1 * cosine(output1, output2, 1 - 2 * label.squeeze(1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    with torch.no_grad():
        distance = F.pairwise_distance(output1, output2)
        nearest = torch.cdist(output1, output2).min(dim=1)[0]
        similar = nn.CosineSimilarity(dim=1, eps=1e-6)(output1, output2)
    return [*losses, distance.sum().item(), nearest.sum().item(), similar.mean().item()]
