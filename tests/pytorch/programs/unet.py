"""Segmentation: down, up, and skip connections joined by torch.cat; two ways up, a Dice loss, and weights saved."""

import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor
from torch.utils.data import DataLoader, Dataset


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid_channels),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Down(nn.Module):
    def __init__(self, in_channels, out_channels):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(in_channels, out_channels))

    def forward(self, x):
        return self.maxpool_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(in_channels, out_channels, in_channels // 2)
        else:
            self.up = nn.ConvTranspose2d(in_channels, in_channels // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(in_channels, out_channels)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        x = torch.cat([x2, x1], dim=1)
        return self.conv(x)


class UNet(nn.Module):
    def __init__(self, n_channels, n_classes):
        super(UNet, self).__init__()
        self.n_channels = n_channels
        self.n_classes = n_classes
        self.inc = DoubleConv(n_channels, 4)
        self.down1 = Down(4, 8)
        self.down2 = Down(8, 8)
        self.up1 = Up(16, 4, bilinear=True)
        self.up2 = nn.ModuleList([Up(8, 4, bilinear=False)])
        self.lift = nn.Conv2d(4, 8, kernel_size=1)
        self.outc = nn.Conv2d(4, n_classes, kernel_size=1)

    def forward(self, x: Tensor) -> Tensor:
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2[0](self.lift(x), x1)
        logits = self.outc(x)
        return logits


def dice_coeff(input: Tensor, target: Tensor, reduce_batch_first: bool = False, epsilon: float = 1e-6):
    assert input.size() == target.size()
    sum_dim = (-1, -2) if input.dim() == 2 or not reduce_batch_first else (-1, -2, -3)
    inter = 2 * (input * target).sum(dim=sum_dim)
    sets_sum = input.sum(dim=sum_dim) + target.sum(dim=sum_dim)
    sets_sum = torch.where(sets_sum == 0, inter, sets_sum)
    dice = (inter + epsilon) / (sets_sum + epsilon)
    return dice.mean()


def dice_loss(input: Tensor, target: Tensor):
    return 1 - dice_coeff(input.flatten(0, 1), target.flatten(0, 1), reduce_batch_first=True)


class Masks(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.images = rng.random((count, 3, 22, 22))
        self.masks = rng.integers(0, 3, (count, 22, 22))

    def __len__(self):
        return len(self.images)

    def __getitem__(self, idx):
        return {
            "image": torch.as_tensor(self.images[idx].copy()).double().contiguous(),
            "mask": torch.as_tensor(self.masks[idx].copy()).long().contiguous(),
        }


def models():
    return {"model": UNet(n_channels=3, n_classes=3)}


def train(model):
    device = torch.device("cpu")
    model = model.to(memory_format=torch.channels_last)
    loader = DataLoader(Masks(20), batch_size=2, shuffle=False, drop_last=True, pin_memory=False)
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, "max", patience=2)
    grad_scaler = torch.amp.GradScaler("cpu", enabled=False)
    criterion = nn.CrossEntropyLoss()
    losses = []
    model.train()
    for batch in loader:
        images, true_masks = batch["image"], batch["mask"]
        assert images.shape[1] == model.n_channels
        images = images.to(device=device, dtype=torch.float64, memory_format=torch.channels_last)
        true_masks = true_masks.to(device=device, dtype=torch.long)
        with torch.autocast(device.type, enabled=False):
            masks_pred = model(images)
            loss = criterion(masks_pred, true_masks)
            loss += dice_loss(
                F.softmax(masks_pred, dim=1).double(),
                F.one_hot(true_masks, model.n_classes).permute(0, 3, 1, 2).double(),
            )
        optimizer.zero_grad(set_to_none=True)
        grad_scaler.scale(loss).backward()
        grad_scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        grad_scaler.step(optimizer)
        grad_scaler.update()
        scheduler.step(-loss.item())
        losses.append(loss.item())

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "checkpoint.pth"
        torch.save({"model": model.state_dict(), "epoch": 1, "best": min(losses)}, path)
        state = torch.load(path, map_location=device, weights_only=True)
    model.load_state_dict(state["model"], strict=True)
    assert state["epoch"] == 1
    return [*losses, state["best"]]
