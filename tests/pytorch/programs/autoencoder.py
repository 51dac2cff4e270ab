"""A denoising autoencoder of convolutions: two ways up, weights tied to nothing, MSE and SSIM, a moving average."""

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import Adam
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset, Subset


class ConvBlock(nn.Sequential):
    def __init__(self, in_channels, out_channels, **kwargs):
        super().__init__(
            nn.Conv2d(in_channels, out_channels, kernel_size=3, padding=1, padding_mode="reflect", **kwargs),
            nn.GroupNorm(2, out_channels),
            nn.SiLU(),
        )


class AutoEncoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(ConvBlock(1, 4, stride=2), ConvBlock(4, 8, stride=2), nn.Flatten())
        self.to_latent = nn.Linear(8 * 4 * 4, 8)
        self.from_latent = nn.Sequential(nn.Linear(8, 8 * 4 * 4), nn.Unflatten(1, (8, 4, 4)))
        self.decoder = nn.Sequential(
            nn.Upsample(scale_factor=2, mode="nearest"),
            ConvBlock(8, 4),
            nn.ConvTranspose2d(4, 4, 3, stride=2, padding=1, output_padding=1),
            nn.PReLU(),
            nn.Conv2d(4, 4, 3, padding="same"),
            nn.PixelShuffle(2),
            nn.AvgPool2d(2),
            nn.Sigmoid(),
        )

    def forward(self, x):
        z = self.to_latent(self.encoder(x))
        return self.decoder(self.from_latent(z)), z


class Noisy(Dataset):
    def __init__(self, count):
        rng = np.random.default_rng(0)
        self.clean = rng.random((count, 1, 16, 16)).astype(np.float64)
        self.noise = rng.normal(0, 0.1, (count, 1, 16, 16))

    def __len__(self):
        return len(self.clean)

    def __getitem__(self, i):
        clean = torch.as_tensor(self.clean[i])
        return (clean + torch.as_tensor(self.noise[i])).clamp(0.0, 1.0), clean


def gaussian_window(size, sigma):
    coords = torch.arange(size, dtype=torch.float64) - size // 2
    g = torch.exp(-(coords**2) / (2 * sigma**2))
    g /= g.sum()
    return torch.outer(g, g)[None, None]


def ssim(x, y, window, c1=0.01**2, c2=0.03**2):
    mu_x, mu_y = F.conv2d(x, window), F.conv2d(y, window)
    xx = F.conv2d(x * x, window) - mu_x.pow(2)
    yy = F.conv2d(y * y, window) - mu_y.pow(2)
    xy = F.conv2d(x * y, window) - mu_x * mu_y
    return (((2 * mu_x * mu_y + c1) * (2 * xy + c2)) / ((mu_x**2 + mu_y**2 + c1) * (xx + yy + c2))).mean()


def models():
    return {"model": AutoEncoder()}


def train(model):
    loader = DataLoader(Subset(Noisy(60), range(50)), batch_size=5, shuffle=False, drop_last=True)
    optimizer = Adam(model.parameters(), lr=1e-2, amsgrad=True)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    window = gaussian_window(5, 1.5)
    losses = []
    for noisy, clean in loader:
        out, z = model(noisy)
        loss = F.mse_loss(out, clean) + 0.1 * (1 - ssim(out, clean, window)) + 1e-3 * z.abs().mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
        optimizer.step()
        ema.update_parameters(model)
        losses.append(loss.item())
    with torch.no_grad():
        reconstructed, latent = ema(noisy)
        psnr = 10 * torch.log10(1.0 / F.mse_loss(reconstructed, clean))
    return [*losses, psnr.item(), latent.std(dim=0).mean().item()]
