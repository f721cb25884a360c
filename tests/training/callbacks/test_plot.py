import types

import numpy as np
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.data import sources
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.images import reader
from cyclegan.run.summaries import SummaryWriter
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.plot import PlotCallback, load_samples, translate_samples, write_samples
from tests.images.dicom_samples import twelve_bits
from tests.images.samples import deep_png
from tests.training.fakes import fake_model


def test_samples_are_the_first_held_out_images(make_images):
    x, y = make_images(7, 16, seed=1), make_images(6, 16, seed=2)
    seen = []
    model = fake_model(lambda networks, x, y: seen.extend([x, y]) or ((tf.constant(x),) * 2,) * 2)
    written = []
    summary = types.SimpleNamespace(write_cycles=lambda *arguments: written.append(arguments))
    names = [f"x[{i}]" for i in range(5)], [f"y[{i}]" for i in range(5)]
    dataset = UnpairedDataset(x, y, 3, (16, 16))
    cycles = translate_samples(model, *load_samples(dataset))
    write_samples(cycles, dataset, summary, 9)
    assert written == [(9, *cycles, [*names])] and [len(cycle) for cycle in cycles] == [3, 3]
    np.testing.assert_allclose(seen[0], x[:5] / 127.5 - 1, atol=1e-6)
    np.testing.assert_allclose(seen[1], y[:5] / 127.5 - 1, atol=1e-6)


def test_samples_of_a_run_with_a_range_show_the_range(tmp_path):
    for name in ("trainA", "trainB", "testA", "testB"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(deep_png(twelve_bits(16, 16)[..., np.newaxis]))
    settings = {
        "value_range_x": "0:4095",
        "value_range_y": "0:8190",
        "channels_x": 1,
        "channels_y": 1,
        "image_size": 16,
    }
    config = Config.from_settings(dataset=str(tmp_path), preprocess="none", **settings)
    domains = sources.load_domains(config.data, config.networks.multiple, splits=sources.TEST_SPLITS)
    dataset = UnpairedDataset(domains.test_x.images, domains.test_y.images, 1, domains.size)
    x, y = load_samples(dataset)
    np.testing.assert_allclose(x[0, ..., 0], twelve_bits(16, 16) / 2047.5 - 1, atol=1e-4)
    np.testing.assert_allclose(y[0, ..., 0], twelve_bits(16, 16) / 4095 - 1, atol=1e-4)
    write_samples(((x, y), (y, x)), dataset, SummaryWriter(tmp_path / "run"), 1)
    shown = reader.decode(tmp_path / "run/samples/epoch_001/fake_x_1.png", 1)
    np.testing.assert_allclose(shown[..., 0], twelve_bits(16, 16) / 4095 * 255, atol=0.51)


def test_images_are_translated_back_only_when_samples_are_written(make_images):
    passes = []
    model = fake_model(lambda networks, x, y: passes.append("there and back") or ((tf.constant(x),) * 2, ()))
    model.networks.in_use.generators = {"G": lambda x, training: passes.append("there") or tf.constant(x)}
    summary = types.SimpleNamespace(write_cycles=lambda *_: passes.append("written"))
    callback = PlotCallback(model, UnpairedDataset(*[make_images(3, 16)] * 2, 3, (16, 16)), summary, 2)
    for epoch, is_last in ((1, False), (2, False), (3, True)):
        callback.on_epoch_end(types.SimpleNamespace(state=TrainState(epoch=epoch, step=500), is_last=is_last))
    assert passes == ["there", *["there and back", "written"] * 2]


def test_a_collapsed_generator_is_reported_once(make_images, caplog):
    """Translate all images of X to nearly one image; those of Y stay different."""
    x, y = make_images(5, 16, seed=1), make_images(5, 16, seed=2)
    model = fake_model(lambda networks, x, y: ((0.01 * tf.constant(x),) * 2, (tf.constant(y),) * 2))
    events = []
    summary = types.SimpleNamespace(write_cycles=lambda *_: None, write_warning=lambda *event: events.append(event[:3]))
    callback, state = (
        PlotCallback(model, UnpairedDataset(x, y, 5, (16, 16)), summary, 99),
        TrainState(epoch=3, step=499),
    )
    for step in (499, 500, 501):  # networks do so before they have learned anything
        state.step = step
        callback.on_epoch_end(types.SimpleNamespace(state=state, is_last=step == 499))
    assert events == [(3, 500, "G has collapsed")] and len(caplog.records) == 1
    assert "epoch 3: G(x) is nearly the same for all 5 sample images" in caplog.text


def test_low_contrast_of_real_images_is_no_collapse(make_images, caplog):
    x, y = make_images(5, 16, seed=1), 120 + make_images(5, 16, seed=2) // 16
    model = fake_model(lambda networks, x, y: ((0.08 * tf.constant(x),) * 2, (tf.constant(y),) * 2))
    callback = PlotCallback(model, UnpairedDataset(x, y, 5, (16, 16)), types.SimpleNamespace(), 99)
    callback.on_epoch_end(types.SimpleNamespace(state=TrainState(epoch=3, step=500), is_last=False))
    assert not caplog.records
