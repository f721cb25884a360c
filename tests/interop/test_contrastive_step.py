"""Training steps with contrastive losses, compared with the published objectives in PyTorch and float64."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.images.value_range import to_float
from cyclegan.interop.torch_networks import read_networks
from cyclegan.methods.cut import random_positions
from cyclegan.methods.randomness import StepRandomness
from cyclegan.training.optimizers import unpack
from cyclegan.training.step import GAN, Batch, train_step
from tests.interop.pytorch_networks import agree_for_one_seed, pytorch_patch_discriminator, pytorch_resnet

SIDE, SAMPLES, PROGRESS = 32, 2, 0.25
FEATURES = (0, 4, 7, 10)  # modules: the padding, both convolutions that halve, and the residual block


class Published:
    """The published losses of networks and heads of PyTorch, at the positions of each feature map."""

    def __init__(self, torch, networks, heads, positions, settings):
        self.torch, self.networks, self.heads, self.positions = torch, networks, heads, positions
        self.settings = settings

    def embed(self, name, images):
        """Return unit vectors [N, P, D] for each feature map of a generator."""
        features = []
        for number, module in enumerate(self.networks[name].model[: FEATURES[-1] + 1]):
            images = module(images)
            features += [images] if number in FEATURES else []
        layers, embedded = self.heads[name], []
        maps = len(layers) // 4  # the first layers of all heads, then the second ones
        for i, (values, at) in enumerate([*zip(features, self.positions)][-maps:]):
            (kernel, bias), (second, second_bias) = layers[2 * i :][:2], layers[2 * (maps + i) :][:2]
            rows = self.torch.stack([each[:, chosen].T for each, chosen in zip(values.flatten(2), at)])
            values = (rows @ kernel + bias).relu() @ second + second_bias
            embedded.append(values / (values.norm(dim=-1, keepdim=True) + 1e-7))
        return embedded

    def mean(self, loss, queries, keys):
        """Return the mean over the samples and the feature maps."""
        pairs = zip(queries, [each.detach() for each in keys])
        return sum(loss(q, k) for one, other in pairs for q, k in zip(one, other)) / (SAMPLES * len(queries))

    def patch_nce(self, q, k):
        """Return the cross-entropy of Park et al. 2020."""
        return self.torch.nn.functional.cross_entropy(q @ k.T / 0.07, self.torch.arange(len(q)))

    def hard_nce(self, q, k):
        """Return the loss of Jung et al. 2022 after a quarter of the training, without the positive."""
        torch, diagonal = self.torch, self.torch.eye(len(q), dtype=bool)
        weights = ((k @ k.T).masked_fill(diagonal, -10) / (50 - 40 * PROGRESS)).softmax(dim=1)
        negative = (q @ k.T * weights / weights.max(dim=1, keepdim=True)[0]).masked_fill(diagonal, -10)
        return torch.logsumexp((negative - (q * k).sum(dim=1, keepdim=True)) / 0.07, dim=1).mean()

    def divergence(self, q, k):
        """Return the Jensen-Shannon divergence of Jung et al. 2022, summed over the patches."""
        p, r = ((each @ each.T).softmax(dim=0) for each in (q, k))
        middle = ((p + r) / 2).log()
        return 0.5 * ((p * (p.log() - middle)).sum() + (r * (r.log() - middle)).sum())

    def losses(self, x, y):
        """Return all losses by our names, of a batch with a sample of padding."""
        fakes, losses = getattr(self, self.settings["objective"])(x, y)
        for domain, real, fake in zip("YX", (y, x), fakes):
            D = self.networks[f"D_{domain}"]
            losses[f"loss_{domain}/loss"] = 0.5 * (((D(real) - 1) ** 2).mean() + (D(fake.detach()) ** 2).mean())
        return {name: value * SAMPLES / (SAMPLES + 1) for name, value in losses.items()}

    def cut(self, x, y):
        """Return the losses of G of Jung et al. 2022."""
        G = self.networks["G"]
        fake_y, same_y = G(x), G(y)
        fakes, of_x, sames, of_y = (self.embed("G", each) for each in (fake_y, x, same_y, y))
        return (fake_y,), {
            "loss_G/loss": ((self.networks["D_Y"](fake_y) - 1) ** 2).mean(),
            "loss_G/nce": 0.1 * self.mean(self.hard_nce, fakes, of_x) / 2,
            "loss_G/nce_identity": 0.1 * self.mean(self.hard_nce, sames, of_y) / 2,
            "loss_G/src": 0.05 * self.mean(self.divergence, fakes, of_x),
        }

    def dclgan(self, x, y):
        """Return the losses of both generators of Han et al. 2021, with LSGAN."""
        losses, fakes = {}, {"G": self.networks["G"](x), "F": self.networks["F"](y)}
        for own, other, real, target, domain in (("G", "F", x, y, "Y"), ("F", "G", y, x, "X")):
            keys, queries = self.embed(own, real), self.embed(other, fakes[own])
            losses[f"loss_{own}/loss"] = ((self.networks[f"D_{domain}"](fakes[own]) - 1) ** 2).mean() / 2
            losses[f"loss_{own}/nce"] = 2 * self.mean(self.patch_nce, queries, keys) / 2
            losses[f"loss_{own}/identity"] = (self.networks[own](target) - target).abs().mean() / 2
        return (fakes["G"], fakes["F"]), losses


def compare_step(seed, torch, settings, make_images, tmp_path):
    torch.manual_seed(seed)
    options = {"variant": "paper", "filters": 4, "residual_blocks": 1, "discriminator_layers": 2, "image_size": SIDE}
    gan = GAN(SAMPLES + 1, Config.from_settings(precision="float32", **options, **settings))
    names = [*gan.networks.generators], [*gan.networks.discriminators]
    networks = {name: pytorch_resnet(torch, 3, 3, 4, 1, "instance") for name in names[0]}
    networks.update({name: pytorch_patch_discriminator(torch, 3, 4, 2, "instance") for name in names[1]})
    for name, network in networks.items():
        torch.save(network.state_dict(), tmp_path / f"{name}.pth")
        network.double()
    imported = read_networks({name: str(tmp_path / f"{name}.pth") for name in networks})
    for name, network in imported.items():
        network.copy_to(gan.networks[name])
    rng, of_heads = np.random.default_rng(1), {}
    for name, network in gan.networks.heads.items():
        for variable in network.trainable_variables:
            variable.assign(rng.normal(0, variable.shape[0] ** -0.5, variable.shape))
        of_heads[name] = [torch.tensor(v.numpy()).double().requires_grad_() for v in network.trainable_variables]

    x, y = make_images(SAMPLES + 1, SIDE, seed=1), make_images(SAMPLES + 1, SIDE, seed=2)
    random = StepRandomness(gan.optimization.seed, tf.constant(0, tf.int64), SAMPLES + 1, SAMPLES + 1)
    noise = gan.objective.make_noise(random, gan.networks, gan.image_shape)
    weight = tf.constant([1.0] * SAMPLES + [0.0])
    metrics, gradients, _ = train_step(gan, Batch(x, y, weight), 0, noise, progress=PROGRESS)
    published = Published(torch, networks, of_heads, [each.numpy() for each in random_positions(noise)], settings)
    images = (torch.tensor(to_float(each[:SAMPLES]).transpose(0, 3, 1, 2)).double() for each in (x, y))
    losses = published.losses(*images)
    assert set(losses) == {name for name in gan.metric_names["train"] if "total" not in name}
    for name, value in losses.items():
        assert float(metrics[name]) == pytest.approx(value.item(), rel=1e-6), name

    every = gan.networks.generator_variables, gan.networks.discriminator_variables
    for part, letters, variables, ours in zip(names, ("GF", "XY"), every, gradients):
        total = sum(value for name, value in losses.items() if name[5] in letters)
        weights = {(name, key): value for name in part for key, value in networks[name].named_parameters()}
        more = [each for name in part for each in of_heads.get(name, [])]
        found = [each.numpy() for each in torch.autograd.grad(total, [*weights.values(), *more])]
        for name in part:  # the import gives PyTorch's gradients the order of our variables
            state = {key: each for (of, key), each in zip(weights, found) if of == name}
            dataclasses.replace(imported[name], state=state).copy_to(gan.networks[name])
        expected = [tf.convert_to_tensor(variable).numpy() for variable in variables]
        expected[len(variables) - len(more) :] = found[len(weights) :]
        rounding = 1e-9 * max(np.abs(each).max() for each in expected)
        for each, gradient in zip(expected, unpack(ours, variables)):
            np.testing.assert_allclose(gradient, each, rtol=0, atol=1e-3 * np.abs(each).max() + rounding)


@pytest.mark.parametrize("settings", [{"objective": "cut", "nce": "hdce"}, {"objective": "dclgan"}], ids=str)
def test_training_step_equals_the_published_objective(torch, settings, make_images, tmp_path):
    """Take two samples, and a third one that is padding."""
    agree_for_one_seed(lambda seed: compare_step(seed, torch, settings, make_images, tmp_path))
