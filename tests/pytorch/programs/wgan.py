"""A Wasserstein GAN: several steps of the critic for one of the generator, weights clipped, gradients by autograd.grad."""

import itertools

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
from torch.optim import RMSprop
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler, TensorDataset


class Generator(nn.Module):
    def __init__(self, latent_dim, img_shape):
        super(Generator, self).__init__()
        self.img_shape = img_shape

        def block(in_feat, out_feat, normalize=True):
            layers = [nn.Linear(in_feat, out_feat)]
            if normalize:
                layers.append(nn.BatchNorm1d(out_feat, 0.8))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(latent_dim, 16, normalize=False),
            *block(16, 32),
            nn.Linear(32, int(np.prod(img_shape))),
            nn.Tanh(),
        )

    def forward(self, z):
        img = self.model(z)
        img = img.view(img.shape[0], *self.img_shape)
        return img


class Critic(nn.Module):
    def __init__(self, img_shape):
        super(Critic, self).__init__()
        self.model = nn.Sequential(
            nn.Linear(int(np.prod(img_shape)), 32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.LayerNorm(32),
            nn.Linear(32, 1),
        )

    def forward(self, img):
        return self.model(img.view(img.shape[0], -1))


def models():
    shape = (1, 6, 6)
    return {"generator": Generator(5, shape), "critic": Critic(shape)}


def train(generator, critic):
    rng = np.random.default_rng(0)
    dataset = TensorDataset(torch.tensor(rng.uniform(-1, 1, (48, 1, 6, 6))))
    loader = DataLoader(dataset, batch_sampler=BatchSampler(SequentialSampler(dataset), batch_size=4, drop_last=False))
    optimizer_G = RMSprop(generator.parameters(), lr=0.005)
    optimizer_D = RMSprop(critic.parameters(), lr=0.005)
    losses = []
    for i, (imgs,) in enumerate(itertools.islice(itertools.cycle(loader), 24)):
        optimizer_D.zero_grad()
        z = torch.tensor(rng.normal(0, 1, (imgs.shape[0], 5)))
        fake_imgs = generator(z).detach()
        loss_D = -torch.mean(critic(imgs)) + torch.mean(critic(fake_imgs))
        loss_D.backward()
        optimizer_D.step()
        for p in critic.parameters():
            p.data.clamp_(-0.1, 0.1)
        losses.append(loss_D.item())
        if i % 3 == 0:
            for p in critic.parameters():
                p.requires_grad = False
            optimizer_G.zero_grad()
            gen_imgs = generator(z)
            loss_G = -torch.mean(critic(gen_imgs))
            loss_G.backward()
            optimizer_G.step()
            for p in critic.parameters():
                p.requires_grad = True
            losses.append(loss_G.item())

    alpha = torch.tensor(rng.random((imgs.size(0), 1, 1, 1)))
    interpolates = (alpha * imgs + (1 - alpha) * fake_imgs).requires_grad_(True)
    d_interpolates = critic(interpolates)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=torch.ones_like(d_interpolates),
        create_graph=False,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    penalty = ((gradients.norm(2, dim=1) - 1) ** 2).mean()
    return [*losses, penalty.item()]
