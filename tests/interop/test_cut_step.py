"""A training step of CUT and FastCUT compared with the published objective in PyTorch."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS
from cyclegan.images.value_range import to_float
from cyclegan.interop.torch_networks import combined_settings, read_networks
from cyclegan.methods.cut import random_positions
from cyclegan.methods.randomness import FLIP, StepRandomness
from cyclegan.training.optimizers import unpack
from cyclegan.training.step import GAN, Batch, train_step
from tests.interop.pytorch_networks import agree_for_one_seed, pytorch_patch_discriminator, pytorch_resnet

SIDE, BLOCKS = 16, 5


def instance_normalization(torch):
    """Return a module: PyTorch's own is wrong in its backward pass on CPUs at batch 1 with a permuted gradient."""

    class Module(torch.nn.Module):
        def forward(self, x):
            centred = x - x.mean(dim=(2, 3), keepdim=True)
            return centred / torch.sqrt((centred**2).mean(dim=(2, 3), keepdim=True) + 1e-5)

    return Module()


def replace_normalizations(torch, module):
    for name, child in module.named_children():
        if isinstance(child, torch.nn.InstanceNorm2d):
            setattr(module, name, instance_normalization(torch))
        replace_normalizations(torch, child)


def features(G, x, blurs):
    """Return the padded image, both widening convolutions, and the first and the fifth block."""
    found, wanted = [], (0, 4, 8, 12, 16) if blurs else (0, 4, 7, 10, 14)
    for number, module in enumerate(G.model[: wanted[-1] + 1]):
        x = module(x)
        found += [x] if number in wanted else []
    return found


def nce(torch, heads, queries, keys, positions):
    """Return the mean over the feature maps of the cross-entropy of the own position, other samples excluded."""

    def embed(maps):
        rows = [each.flatten(2).transpose(1, 2) for each in maps]
        rows = [torch.stack([row[at] for row, at in zip(each, chosen)]) for each, chosen in zip(rows, positions)]
        embedded = [head(each) for head, each in zip(heads, rows)]
        return [each / (each.norm(dim=2, keepdim=True) + 1e-7) for each in embedded]

    terms = []
    for q, k in zip(embed(queries), embed(keys)):
        k = k.detach()
        others = (q @ k.transpose(1, 2)).masked_fill(torch.eye(q.shape[1], dtype=torch.bool), -10.0)
        logits = torch.cat([(q * k).sum(dim=2, keepdim=True), others], dim=2).flatten(0, 1) / 0.07
        terms.append(torch.nn.functional.cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long)))
    return sum(terms) / len(terms)


def published_losses(torch, objective, networks, heads, x, y, positions, flip, blurs):
    """Return the losses of Park et al. 2020 by our names."""
    G, D = networks["G"], networks["D_Y"]
    mirror = lambda each: torch.where(flip[:, None, None, None], each.flip(3), each)  # noqa: E731
    fake = G(mirror(x) if objective == "fastcut" else x)
    queries = features(G, fake, blurs)
    if objective == "fastcut":
        parts = {"nce": 10 * nce(torch, heads, [mirror(each) for each in queries], features(G, x, blurs), positions)}
    else:
        parts = {
            "nce": 0.5 * nce(torch, heads, queries, features(G, x, blurs), positions),
            "nce_identity": 0.5 * nce(torch, heads, features(G, G(y), blurs), features(G, y, blurs), positions),
        }
    parts["loss"] = ((D(fake) - 1) ** 2).mean()
    parts["total"] = sum(parts.values())
    of_discriminator = 0.5 * (((D(y) - 1) ** 2).mean() + (D(fake.detach()) ** 2).mean())
    return {**{f"loss_G/{name}": value for name, value in parts.items()}, "loss_Y/loss": of_discriminator}


def compare_step(seed, torch, objective, batch_size, blurs, make_images, tmp_path):
    torch.manual_seed(seed)
    networks = {
        "G": pytorch_resnet(torch, 3, 3, 4, BLOCKS, "instance", blurs=blurs),
        "D_Y": pytorch_patch_discriminator(torch, 3, 4, 2, "instance", blurs=blurs),
    }
    for name, network in networks.items():
        torch.save(network.state_dict(), tmp_path / f"{name}.pth")
        replace_normalizations(torch, network.double())
    imported = read_networks({name: str(tmp_path / f"{name}.pth") for name in networks})
    settings = {name: value for name, (value, _) in combined_settings(imported).items()}
    sizes = {"image_size": SIDE, "load_size": SIDE, "precision": "float32", "batch_size": batch_size}
    gan = GAN(batch_size, Config.from_settings(**{**PRESETS[objective], **settings, **sizes}))
    for name, network in imported.items():
        network.copy_to(gan.networks[name])

    weights = gan.networks.heads["G"].trainable_variables
    for number, weight in enumerate(weights):
        weight.assign(np.random.default_rng(number).normal(0, 0.1, weight.shape))
    heads, maps = [], len(weights) // 4
    for i in range(maps):
        layers = [torch.nn.Linear(*weights[j].shape).double() for j in (2 * i, 2 * (maps + i))]
        for layer, j in zip(layers, (2 * i, 2 * (maps + i))):
            layer.weight.data = torch.tensor(weights[j].numpy().T).double()
            layer.bias.data = torch.tensor(weights[j + 1].numpy()).double()
        heads.append(torch.nn.Sequential(layers[0], torch.nn.ReLU(), layers[1]))

    images = make_images(batch_size, SIDE, seed=1), make_images(batch_size, SIDE, seed=2)
    noise = gan.objective.make_noise(
        StepRandomness(0, tf.constant(1, tf.int64), batch_size, batch_size), gan.networks, (SIDE, SIDE)
    )
    metrics, gradients, _ = train_step(gan, Batch(*images, tf.ones(batch_size)), noise=noise)
    positions = [torch.tensor(each.numpy()) for each in random_positions(noise)]
    flip = torch.tensor(noise[FLIP].numpy()) if FLIP in noise else None
    x, y = (torch.tensor(to_float(each).transpose(0, 3, 1, 2)).double() for each in images)
    losses = published_losses(torch, objective, networks, heads, x, y, positions, flip, blurs)
    for name in gan.metric_names["train"]:
        assert float(metrics[name]) == pytest.approx(losses[name].item(), rel=1e-6), name

    for name, total in (("G", losses["loss_G/total"]), ("D_Y", losses["loss_Y/loss"])):
        modules = [networks[name], *(heads if name == "G" else [])]
        parameters = [each for module in modules for each in module.parameters()]
        found = [each.numpy() for each in torch.autograd.grad(total, parameters)]
        # The import gives PyTorch's gradients the order of our variables.
        named = dict(zip((key for key, _ in networks[name].named_parameters()), found))
        constants = {key: value for key, value in imported[name].state.items() if key not in named}
        dataclasses.replace(imported[name], state={**named, **constants}).copy_to(gan.networks[name])
        if name == "G":
            for i in range(maps):
                of_head = found[len(named) + 4 * i :][:4]
                for j, gradient in zip((2 * i, 2 * i + 1, 2 * (maps + i), 2 * (maps + i) + 1), of_head):
                    weights[j].assign(gradient.T)
    for variables, ours in zip((gan.networks.generator_variables, gan.networks.discriminator_variables), gradients):
        expected = [tf.convert_to_tensor(variable).numpy() for variable in variables]
        rounding = 1e-9 * max(np.abs(each).max() for each in expected)
        for each, gradient in zip(expected, unpack(ours, variables)):
            np.testing.assert_allclose(gradient, each, rtol=0, atol=1e-3 * np.abs(each).max() + rounding)


@pytest.mark.sampled
@pytest.mark.parametrize("objective", ["cut", "fastcut"])
@pytest.mark.parametrize("batch_size, blurs", [(1, True), (2, True), (2, False)])
def test_training_step_equals_the_published_objective(torch, objective, batch_size, blurs, make_images, tmp_path):
    """PyTorch computes in float64, so that only our rounding counts."""
    agree_for_one_seed(lambda seed: compare_step(seed, torch, objective, batch_size, blurs, make_images, tmp_path))
