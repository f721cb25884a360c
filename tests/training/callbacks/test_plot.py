import types

import numpy as np
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.training.callbacks.plot import plot_samples
from tests.training.fakes import fake_model


def test_samples_are_the_first_held_out_images(make_images):
    x, y = make_images(7, 16, seed=1), make_images(6, 16, seed=2)
    seen = []
    model = fake_model(lambda networks, x, y: seen.extend([x, y]) or ((tf.constant(x),) * 2,) * 2)
    summary = types.SimpleNamespace(write_cycles=lambda epoch, x, y, names: (epoch, len(x), len(y), names))
    names = [f"x[{i}]" for i in range(5)], [f"y[{i}]" for i in range(5)]
    assert plot_samples(model, UnpairedDataset(x, y, 3, (16, 16)), summary, 9) == (9, 3, 3, [*names])
    np.testing.assert_allclose(seen[0], x[:5] / 127.5 - 1, atol=1e-6)
    np.testing.assert_allclose(seen[1], y[:5] / 127.5 - 1, atol=1e-6)
