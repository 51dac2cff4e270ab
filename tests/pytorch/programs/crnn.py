"""Reading text in pictures: convolutions, a bidirectional LSTM over the width, CTC, and greedy decoding."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset

ALPHABET = "0123456789"


class BidirectionalLSTM(nn.Module):
    def __init__(self, nIn, nHidden, nOut):
        super(BidirectionalLSTM, self).__init__()
        self.rnn = nn.LSTM(nIn, nHidden, bidirectional=True)
        self.embedding = nn.Linear(nHidden * 2, nOut)

    def forward(self, input):
        recurrent, _ = self.rnn(input)
        T, b, h = recurrent.size()
        t_rec = recurrent.view(T * b, h)
        output = self.embedding(t_rec)
        output = output.view(T, b, -1)
        return output


class CRNN(nn.Module):
    def __init__(self, nclass, nh):
        super(CRNN, self).__init__()
        cnn = nn.Sequential()
        channels = [1, 4, 8]
        for i in range(2):
            cnn.add_module("conv{0}".format(i), nn.Conv2d(channels[i], channels[i + 1], 3, 1, 1))
            cnn.add_module("batchnorm{0}".format(i), nn.BatchNorm2d(channels[i + 1]))
            cnn.add_module("relu{0}".format(i), nn.LeakyReLU(0.2, inplace=True))
            cnn.add_module("pooling{0}".format(i), nn.MaxPool2d((2, 2), (2, 1), (0, 1)))
        cnn.add_module("last", nn.Conv2d(8, 8, kernel_size=(4, 2)))
        self.cnn = cnn
        self.rnn = nn.Sequential(BidirectionalLSTM(8, nh, nh), BidirectionalLSTM(nh, nh, nclass))

    def forward(self, input):
        conv = self.cnn(input)
        b, c, h, w = conv.size()
        assert h == 1, "the height of conv must be 1"
        conv = conv.squeeze(2)
        conv = conv.permute(2, 0, 1)
        output = self.rnn(conv)
        return F.log_softmax(output, dim=2)


class Texts(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.images = rng.random((count, 1, 16, 20))
        self.texts = ["".join(rng.choice(list(ALPHABET), rng.integers(2, 5))) for _ in range(count)]

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, index):
        return self.images[index], self.texts[index]


def collate(batch):
    images, texts = zip(*batch)
    images = torch.stack([torch.from_numpy(image) for image in images], 0)
    labels = [torch.tensor([ALPHABET.index(c) + 1 for c in text], dtype=torch.long) for text in texts]
    lengths = torch.tensor([len(label) for label in labels], dtype=torch.long)
    return images, pad_sequence(labels, batch_first=True), lengths, texts


def decode(preds, lengths):
    words = []
    for i in range(preds.size(0)):
        row = preds[i][: lengths[i]].tolist()
        words.append("".join(ALPHABET[c - 1] for k, c in enumerate(row) if c != 0 and (k == 0 or c != row[k - 1])))
    return words


def models():
    return {"crnn": CRNN(len(ALPHABET) + 1, 8)}


def train(crnn):
    loader = DataLoader(Texts(40), batch_size=4, collate_fn=collate, shuffle=False, num_workers=0)
    criterion = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)
    optimizer = torch.optim.Adam(crnn.parameters(), lr=0.01)
    losses = []
    for images, text, length, words in loader:
        preds = crnn(images)
        preds_size = torch.IntTensor([preds.size(0)] * images.size(0))
        cost = criterion(preds, text, preds_size, length)
        crnn.zero_grad()
        cost.backward()
        nn.utils.clip_grad_norm_(crnn.parameters(), 5)
        optimizer.step()
        losses.append(cost.item())
    _, best = preds.max(2)
    guessed = decode(best.transpose(1, 0).contiguous(), preds_size)
    right = sum(guess == word for guess, word in zip(guessed, words))
    return [*losses, right, float(sum(map(len, guessed)))]
