"""A training step compared with the published objective in PyTorch, with the same weights and images."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS
from cyclegan.images.value_range import to_float
from cyclegan.interop.torch_networks import combined_settings, read_networks
from cyclegan.training.optimizers import unpack
from cyclegan.training.step import GAN, Batch, train_step
from tests.interop.pytorch_networks import agree_for_one_seed, pytorch_patch_discriminator, pytorch_resnet, pytorch_unet
from tests.training.helpers import LOSSES

GENERATORS, DISCRIMINATORS = ("G", "F"), ("D_X", "D_Y")
MAKE_GENERATOR = {
    "resnet": lambda torch: pytorch_resnet(torch, 3, 3, 4, 1, "instance"),
    "unet_128": lambda torch: pytorch_unet(torch, 3, 3, 4, 7, "instance"),
}


def published_losses(networks, x, y):
    """Return the losses of Zhu et al. 2017, section 3 and appendix, by our names."""
    G, F, D_X, D_Y = (networks[name] for name in (*GENERATORS, *DISCRIMINATORS))
    fake_x, fake_y = F(y), G(x)
    losses = {}
    for name, real, fake, cycle, same, D in (
        ("G", y, fake_y, G(fake_x), G(y), D_Y),
        ("F", x, fake_x, F(fake_y), F(x), D_X),
    ):
        parts = {
            "loss": ((D(fake) - 1) ** 2).mean(),
            "cycle": 10 * (cycle - real).abs().mean(),
            "identity": 0.5 * 10 * (same - real).abs().mean(),
        }
        losses.update({f"loss_{name}/{part}": value for part, value in {**parts, "total": sum(parts.values())}.items()})
    for name, real, fake, D in (("X", x, fake_x, D_X), ("Y", y, fake_y, D_Y)):
        losses[f"loss_{name}/loss"] = 0.5 * (((D(real) - 1) ** 2).mean() + (D(fake.detach()) ** 2).mean())
    return losses


def published_gradients(torch, networks, losses):
    """Return the gradients as a state dict for each network; the generators minimize the sum of their losses."""
    gradients = {}
    for names, total in (
        (GENERATORS, losses["loss_G/total"] + losses["loss_F/total"]),
        (DISCRIMINATORS, losses["loss_X/loss"] + losses["loss_Y/loss"]),
    ):
        weights = {(name, key): value for name in names for key, value in networks[name].named_parameters()}
        for (name, key), value in zip(weights, torch.autograd.grad(total, [*weights.values()])):
            gradients.setdefault(name, {})[key] = value.numpy()
    return gradients


def compare_step(seed, torch, generator, side, pool_size, make_images, tmp_path):
    torch.manual_seed(seed)
    networks = {name: MAKE_GENERATOR[generator](torch) for name in GENERATORS}
    networks.update({name: pytorch_patch_discriminator(torch, 3, 4, 2, "instance") for name in DISCRIMINATORS})
    for name, network in networks.items():
        torch.save(network.state_dict(), tmp_path / f"{name}.pth")
        network.double()
    imported = read_networks({name: str(tmp_path / f"{name}.pth") for name in networks})
    settings = {name: value for name, (value, _) in combined_settings(imported).items()}
    sizes = {"image_size": side, "load_size": side, "pool_size": pool_size, "precision": "float32"}
    gan = GAN(1, Config.from_settings(**{**PRESETS["paper"], **settings, **sizes}))
    for name, network in imported.items():
        network.copy_to(gan.networks[name])

    images = make_images(1, side, seed=1), make_images(1, side, seed=2)
    metrics, gradients, _ = train_step(gan, Batch(*images, tf.ones(1)))
    losses = published_losses(
        networks, *(torch.tensor(to_float(each).transpose(0, 3, 1, 2)).double() for each in images)
    )
    for name in LOSSES:
        assert float(metrics[name]) == pytest.approx(losses[name].item(), rel=1e-6), name

    # The import gives PyTorch's gradients the order of our variables.
    for name, state in published_gradients(torch, networks, losses).items():
        dataclasses.replace(imported[name], state=state).copy_to(gan.networks[name])
    for variables, ours in zip((gan.networks.generator_variables, gan.networks.discriminator_variables), gradients):
        expected = [tf.convert_to_tensor(variable).numpy() for variable in variables]
        # The gradients of biases before a normalization are 0 but for the rounding of float64.
        rounding = 1e-9 * max(np.abs(each).max() for each in expected)
        for each, gradient in zip(expected, unpack(ours, variables)):
            np.testing.assert_allclose(gradient, each, rtol=0, atol=1e-3 * np.abs(each).max() + rounding)


# An empty pool returns its input.
@pytest.mark.parametrize("generator, side, pool_size", [("resnet", 32, 50), ("resnet", 32, 0), ("unet_128", 128, 50)])
def test_training_step_equals_the_published_objective(torch, generator, side, pool_size, make_images, tmp_path):
    """PyTorch computes in float64, so that only our rounding counts."""
    agree_for_one_seed(lambda seed: compare_step(seed, torch, generator, side, pool_size, make_images, tmp_path))
