import time

import pytest
import tensorflow as tf

from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError
from cyclegan.methods.metric_names import SAMPLES
from tests.training.fakes import Recorder, Steps, make_dataset, make_trainer


def test_unreadable_image_ends_training_with_a_checkpoint(strategies, make_images):
    images = make_images(7, 16)

    class Gone:
        shape, dtype, failure = images.shape, images.dtype, None

        def __len__(self):
            return len(images)

        def __getitem__(self, index):
            if index == 2:
                self.failure = "an image does not decode any more: two.jpg; repair it or put it back"
                raise TrainingError(self.failure)
            return images[index]

    train, recorder = UnpairedDataset(Gone(), images, 3, (16, 16), seed=0), Recorder()
    test = make_dataset(images, 3, None), Steps("test")
    trainer = make_trainer(strategies[1], recorder, (train, Steps("train")), test, epochs=1)
    with pytest.raises(TrainingError, match="two.jpg; repair it or put it back"):
        trainer.fit()
    saved = recorder.saved.train
    assert saved.pairs_done == saved.sums[SAMPLES] == saved.sums["loss_G/loss"]
    steps = recorder.steps_of("save")
    assert steps[0] == 0 and steps[-1] == trainer.state.step < 3


def test_too_little_memory_is_explained(fit):
    def run_out(split):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    with pytest.raises(TrainingError, match="not enough memory for a step: try a smaller --batch_size"):
        fit(1, on_call=run_out)


def test_speed_covers_all_calls_but_the_first(fit, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    distributed = UnpairedDataset.distributed

    def slow(pairs, *args):
        for batch in distributed(pairs, *args):
            clock[0] += 3
            yield batch

    def work(split):
        clock[0] += 1

    monkeypatch.setattr(UnpairedDataset, "distributed", slow)
    metrics, _, _ = fit(2, on_call=work)
    for split in ("train", "test"):
        assert (metrics[split]["speed/data_wait"], metrics[split]["speed/ms_per_step"]) == (0.75, 4000)


def test_progress_bars_follow_verbose(fit, capsys):
    fit(1, verbose=0)
    assert capsys.readouterr().err == ""
    fit(1, verbose=1)
    bars = capsys.readouterr().err
    for text in ("Train: 100%", "Test: 100%", "3/3", "images/s"):
        assert text in bars
