import math

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.errors import UserError
from cyclegan.networks import blocks, discriminators, flops, generators
from cyclegan.networks.dropout import Dropout, random_stream
from cyclegan.networks.resnet_generator import residual_block

PAPER = {"variant": "paper"}


def test_parameter_counts_are_those_of_the_keras_example():
    assert generators.generator(Config.from_settings()).count_params() == 11_383_427
    assert discriminators.discriminator(Config.from_settings()).count_params() == 2_765_633


def test_parameter_counts_are_those_of_the_paper():
    assert generators.generator(Config.from_settings(**PAPER)).count_params() == 11_378_179
    assert generators.generator(Config.from_settings(generator="resnet_6blocks", **PAPER)).count_params() == 7_837_699
    assert discriminators.discriminator(Config.from_settings(**PAPER)).count_params() == 2_764_737


@pytest.mark.parametrize("name, halvings, published", [("unet_256", 8, 54.41e6), ("unet_128", 7, 41.83e6)])
def test_parameter_counts_of_u_nets_with_batch_normalization(name, halvings, published):
    """Kernels of 4 x 4 between the widths on the way down; up again from what came back and the skip. Batch norm: two each."""
    widths = [3, *(64 * min(2**depth, 8) for depth in range(halvings))]
    down = sum(16 * before * after for before, after in zip(widths, widths[1:]))
    up = 16 * widths[-1] * widths[-2] + sum(16 * 2 * inner * outer for outer, inner in zip(widths, widths[1:-1]))
    norms = 2 * (sum(widths[2:-1]) + sum(widths[1:-1]))
    generator = generators.generator(Config.from_settings(generator=name, norm="batch"))
    counted = sum(math.prod(variable.shape) for variable in generator.trainable_variables)
    assert counted == down + up + norms + 3 == pytest.approx(published, rel=1e-3)
    assert sum(math.prod(variable.shape) for variable in generator.non_trainable_variables) == norms


@pytest.mark.parametrize("height, width", [(16, 16), (32, 48), (36, 20)])
@pytest.mark.parametrize("form", [{}, PAPER, {"upsample": "resize"}, {"norm": "none"}, {"norm": "batch"}], ids=str)
def test_a_generator_keeps_the_size_and_stays_in_range(height, width, form):
    generator = generators.generator(Config.from_settings(filters=4, residual_blocks=1, **form))
    x = np.random.default_rng(0).uniform(-1, 1, (2, height, width, 3)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == x.shape and y.dtype == np.float32 and np.abs(y).max() <= 1


@pytest.mark.parametrize("upsample", ["transpose", "resize"])
def test_a_u_net_keeps_the_size_with_other_channels(upsample):
    generator = generators.generator(
        Config.from_settings(filters=2, generator="unet_128", upsample=upsample, image_size=128), 1, 2
    )
    x = np.random.default_rng(0).uniform(-1, 1, (1, 128, 256, 1)).astype(np.float32)
    y = generator(x).numpy()
    assert y.shape == (1, 128, 256, 2) and np.abs(y).max() <= 1


def test_a_u_net_uses_what_there_was_at_each_size():
    """Every kernel gets a gradient; on the way up for what came back, the second half that goes in, and for the skip, the first."""
    generator = generators.generator(Config.from_settings(filters=2, generator="unet_128", image_size=128, norm="none"))
    for variable in generator.trainable_variables:
        variable.assign(0.3 * tf.random.stateless_normal(variable.shape, [1, 2]))
    with tf.GradientTape() as tape:
        y = generator(tf.random.stateless_uniform([1, 128, 128, 3], [3, 4]))
    kernels = [variable for variable in generator.trainable_variables if len(variable.shape) == 4]
    gradients = tape.gradient(y, kernels)
    assert len(kernels) == 14 and all(np.any(gradient.numpy()) for gradient in gradients)
    for gradient in gradients[8:]:
        halves = np.split(gradient.numpy(), 2, axis=-1)
        assert np.any(halves[0]) and np.any(halves[1])


@pytest.mark.parametrize(
    "form, size, patches",
    [({}, 256, 32), ({}, 64, 8), ({}, 36, 5), (PAPER, 256, 30), (PAPER, 64, 6), (PAPER, 36, 2)]
    + [({"discriminator_layers": 1}, 36, 18), ({"discriminator_layers": 5}, 64, 2)]
    + [({"discriminator_layers": 2, **PAPER}, 256, 62), ({"discriminator": "pixel", **PAPER}, 36, 36)],
)
def test_a_discriminator_judges_patches(form, size, patches):
    discriminator = discriminators.discriminator(Config.from_settings(filters=4, **form))
    assert discriminator(tf.zeros([1, size, size, 3])).shape == (1, patches, patches, 1)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_smallest_pictures_that_the_paper_s_discriminator_takes_leave_one_patch(count):
    size = 3 * 2**count
    networks = Config.from_settings(filters=2, discriminator_layers=count, image_size=max(16, size), **PAPER)
    assert discriminators.discriminator(networks)(tf.zeros([1, size, size, 3])).shape == (1, 1, 1, 1)
    if size > 16:
        with pytest.raises(UserError, match=f"--discriminator_layers {count}: halves pictures of {size - 4} pixels to"):
            Config.from_settings(filters=2, discriminator_layers=count, image_size=size - 4, **PAPER)


def test_a_pixel_discriminator_sees_nothing_but_the_pixel():
    """Without a normalization, which sees all of them. Its parameters by hand: 64 and 128 channels, biases everywhere."""
    discriminator = discriminators.discriminator(Config.from_settings(discriminator="pixel", norm="none"))
    assert discriminator.count_params() == 3 * 64 + 64 + 64 * 128 + 128 + 128 + 1
    x = np.random.default_rng(0).uniform(-1, 1, (1, 5, 4, 3)).astype(np.float32)
    before = discriminator(x).numpy()
    x[0, 2, 3] += 1
    assert np.argwhere(discriminator(x).numpy() != before).tolist() == [[0, 2, 3, 0]]


def test_networks_have_the_channels_asked_for():
    assert generators.generator(Config.from_settings(filters=4, residual_blocks=0), 1, 1)(
        tf.zeros([1, 16, 16, 1])
    ).shape == (
        1,
        16,
        16,
        1,
    )
    assert discriminators.discriminator(Config.from_settings(filters=4), 5)(tf.zeros([1, 16, 16, 5])).shape == (
        1,
        2,
        2,
        1,
    )


def test_kernels_start_normal():
    kernels = [
        w.numpy()
        for w in generators.generator(Config.from_settings(filters=32, residual_blocks=2)).trainable_variables
        if len(w.shape) == 4
    ]
    assert abs(np.concatenate([k.ravel() for k in kernels]).std() - 0.02) < 2e-4


@pytest.mark.parametrize("count, patch", [(1, 16), (2, 34), (3, 70), (4, 142), (5, 286)])
def test_how_many_pixels_a_patch_of_a_discriminator_is_wide(count, patch):
    """These are the sizes that pix2pix names its PatchGANs by, but for the smallest."""
    discriminator = discriminators.discriminator(Config.from_settings(filters=2, discriminator_layers=count))
    field = 1
    convolutions = [layer for layer in discriminator.layers if isinstance(layer, tf.keras.layers.Conv2D)]
    for layer in reversed(convolutions):
        field = (field - 1) * layer.strides[0] + layer.kernel_size[0]
    assert field == patch


def test_the_multiplications_of_the_paper_s_networks_by_hand():
    """At 256 px. Generator: 7x7 in and out, two convolutions down, 18 in the blocks, two up. Discriminator: five of 4x4."""
    generator = (
        256**2 * 7**2 * 3 * 64
        + 128**2 * 3**2 * 64 * 128
        + 64**2 * 3**2 * 128 * 256
        + 18 * 64**2 * 3**2 * 256 * 256
        + 64**2 * 3**2 * 256 * 128  # transposed: each number that goes in is multiplied by the whole kernel
        + 128**2 * 3**2 * 128 * 64
        + 256**2 * 7**2 * 64 * 3
    )
    assert generator == pytest.approx(49.55e9, rel=1e-4)
    assert (
        flops.count_macs(generators.generator(Config.from_settings(filters=64, residual_blocks=9)), 256, 256)
        == generator
    )
    channels = (3, 64, 128, 256, 512, 1)
    discriminator = sum(
        side**2 * 4**2 * before * after for side, before, after in zip((128, 64, 32, 32, 32), channels, channels[1:])
    )
    assert (
        flops.count_macs(discriminators.discriminator(Config.from_settings(filters=64)), 256, 256) == discriminator
    )


@pytest.mark.parametrize(
    "make, height, width",
    [
        (lambda: generators.generator(Config.from_settings(filters=2, residual_blocks=2)), 16, 16),
        (lambda: generators.generator(Config.from_settings(filters=2, residual_blocks=0)), 36, 20),
        (lambda: generators.generator(Config.from_settings(filters=3, residual_blocks=1), 1, 1), 20, 44),
        (lambda: discriminators.discriminator(Config.from_settings(filters=2)), 16, 16),
        (lambda: discriminators.discriminator(Config.from_settings(filters=2)), 37, 53),
        (lambda: discriminators.discriminator(Config.from_settings(filters=2), 5), 70, 31),
        (lambda: generators.generator(Config.from_settings(filters=2, residual_blocks=1, **PAPER)), 37, 20),
        (lambda: generators.generator(Config.from_settings(filters=2, residual_blocks=1, upsample="resize")), 36, 20),
        (lambda: generators.generator(Config.from_settings(filters=2, generator="unet_128", image_size=128)), 128, 256),
        (lambda: discriminators.discriminator(Config.from_settings(filters=2, **PAPER)), 37, 53),
        (lambda: discriminators.discriminator(Config.from_settings(filters=2, discriminator="pixel")), 37, 53),
    ],
)
def test_multiplications_are_those_of_the_operations_of_the_graph(make, height, width, monkeypatch):
    monkeypatch.setattr(hardware, "accelerated", lambda: True)  # where every convolution is one operation
    network = make()
    graph = tf.function(network).get_concrete_function(tf.TensorSpec([1, height, width, network.input_shape[-1]])).graph
    counted = 0
    for operation in graph.get_operations():
        if operation.type in ("Conv2D", "Conv2DBackpropInput"):
            which = operation.outputs[0] if operation.type == "Conv2D" else operation.inputs[2]
            counted += math.prod(which.shape[1:3]) * math.prod(operation.inputs[1].shape)
    assert flops.count_macs(network, height, width) == counted > 0


def test_a_residual_block_adds_to_its_input():
    picture = tf.keras.Input((None, None, 4))
    block = tf.keras.Model(
        picture, residual_block(blocks.BlockBuilder(Config.from_settings(dropout=0.5)), picture)
    )
    for weight in block.trainable_variables:
        weight.assign(tf.zeros_like(weight))
    x = np.random.default_rng(0).normal(size=(1, 6, 5, 4)).astype(np.float32)
    np.testing.assert_array_equal(block(x).numpy(), x)  # also negative values: no ReLU after the sum


@pytest.mark.parametrize(
    "form, count", [({"generator": "resnet_4blocks"}, 4), ({"generator": "unet_128", "image_size": 128}, 2), ({}, 0)]
)
def test_dropout_is_where_the_reference_has_it(form, count):
    generator = generators.generator(Config.from_settings(filters=2, dropout=0.5 if form else 0.0, **form))
    assert sum(isinstance(layer, Dropout) for layer in generator.layers) == count


def test_scales_start_around_1_but_in_the_keras_example():
    for form, middle in (({}, 0.0), ({"norm": "batch"}, 1.0), ({"norm": "batch", **PAPER}, 1.0)):
        generator = generators.generator(Config.from_settings(filters=16, residual_blocks=4, **form))
        scales = np.concatenate([v.numpy() for v in generator.trainable_variables if "gamma" in v.name])
        assert scales.mean() == pytest.approx(middle, abs=0.004) and scales.std() == pytest.approx(0.02, rel=0.2)


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras 3.15's, with NumPy 2.5
@pytest.mark.parametrize("form", [{}, PAPER, {"norm": "batch", "dropout": 0.5}], ids=str)
def test_networks_are_saved_and_loaded_by_keras(form, tmp_path):
    generator = generators.generator(Config.from_settings(filters=2, residual_blocks=1, **form))
    generator.save(tmp_path / "generator.keras")
    x = np.random.default_rng(0).uniform(-1, 1, (1, 16, 20, 3)).astype(np.float32)
    loaded = tf.keras.models.load_model(tmp_path / "generator.keras")
    np.testing.assert_array_equal(loaded(x).numpy(), generator(x).numpy())


def trained(strategy, config, steps=3):
    """(losses, all variables before and after) of steps with SGD on six pictures each, as training does it.

    The network is called with two inputs as one batch, and with another one. Running statistics are among the variables.
    """
    replicas = strategy.num_replicas_in_sync
    count = 6 // replicas
    x = np.random.default_rng(0).uniform(-1, 1, (steps, 6, 16, 16, 3)).astype(np.float32)
    with strategy.scope():
        tf.keras.utils.set_random_seed(1)
        network = generators.generator(config)

    def of_each(value):
        return strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(value(context.replica_id_in_sync_group * count))
        )

    def step(number, parts, start):
        x = parts[number]
        with tf.GradientTape() as tape, random_stream(tf.stack([7, number]), 6, start, count):
            one = network(tf.concat([x, -x], axis=0), training=True)
            other = network(one[:count], training=True)
            error = tf.concat([one[:count], one[count:], other], axis=-1) - 0.5
            loss = tf.reduce_sum(tf.reduce_mean(error**2, axis=[1, 2, 3])) / 6
        gradients = tape.gradient(loss, network.trainable_variables)
        summed = tf.distribute.get_replica_context().all_reduce("SUM", [loss, *gradients])
        for variable, gradient in zip(network.trainable_variables, summed[1:]):
            tf.raw_ops.ResourceApplyGradientDescent(var=variable.handle, alpha=0.1, delta=gradient)
        return summed[0]

    @tf.function(autograph=False)
    def run(parts, starts):
        def one(number, losses):
            loss = strategy.run(step, args=(number, parts, starts))
            return number + 1, losses.write(number, strategy.experimental_local_results(loss)[0])

        return tf.while_loop(
            lambda number, _: number < steps, one, (tf.constant(0), tf.TensorArray(tf.float32, steps))
        )[1].stack()

    def variables():
        return [tf.convert_to_tensor(v).numpy() for v in network.variables]

    before = variables()
    losses = run(of_each(lambda first: x[:, first : first + count]), of_each(lambda first: first)).numpy()
    return losses, before, variables()


@pytest.mark.parametrize("form", [{"norm": "batch", "residual_blocks": 0}, {"dropout": 0.5, "norm": "none"}], ids=str)
def test_batch_normalization_and_dropout_do_not_depend_on_the_number_of_replicas(form, strategies):
    config = Config.from_settings(**{"filters": 4, "residual_blocks": 1, "init": "kaiming", **form})
    (one, before, after), (three, _, apart) = (trained(strategies[replicas], config) for replicas in (1, 3))
    np.testing.assert_allclose(three, one, rtol=1e-5)
    moved = [np.abs(new - old).max() for old, new in zip(before, after)]
    for old, new, other in zip(before, after, apart):
        np.testing.assert_allclose(other, new, atol=1e-5 + 1e-4 * np.abs(new - old).max())
    assert min(moved) > 1e-6 and max(moved) > 1e-2
