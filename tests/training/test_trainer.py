import contextlib
import pathlib
import re
from types import SimpleNamespace

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.config.command_line import PRESETS
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.methods.objective import CHANGES, ERRORS, SAMPLES
from cyclegan.run.throughput import FAST_FLOPS, duration
from cyclegan.run.train_state import TrainState
from cyclegan.training.divergence import DivergencePolicy
from cyclegan.training.step import GAN
from tests.training.fakes import RATES, Recorder, Steps, calls_without_times, make_dataset, make_trainer, without_times
from tests.training.helpers import LOSSES


def test_metrics_are_exact_means_over_the_samples(fit):
    metrics, _, _ = fit(1)  # three batches of 3, 3 and 1 samples; every sample's loss is 1
    assert all(metrics["train"][key] == pytest.approx(1) for key in LOSSES)
    assert all(metrics["test"][key] == pytest.approx(1) for key in LOSSES + ERRORS + CHANGES)
    assert metrics["train"]["learning_rate"] == 0.5
    for split in ("train", "test"):
        # Speeds count the two steps with 4 pairs after the first step, in which TensorFlow traces.
        rate, milliseconds = (metrics[split][f"speed/{name}"] for name in ("images_per_second", "ms_per_step"))
        assert rate == pytest.approx(8 / (2 * milliseconds / 1000)) and milliseconds < 1000 * metrics[split]["seconds"]
        assert metrics[split]["skipped_steps"] == 0


@pytest.mark.parametrize("options", [{}, {"bad": (2, 5)}, {"bad": (4, 5, 6), "max_bad_steps": 3, "bad_tests": (1,)}])
def test_calls_of_several_steps_log_the_same_as_single_steps(fit, options):
    def written(steps):
        _, recorder, trainer = fit(3, steps=steps, log_every=6, **options)
        return calls_without_times(recorder), fit.warnings(), trainer.state.step

    assert written(1) == written(2) == written(3) == written(6)


def test_plots_and_checkpoints_follow_their_intervals(fit):
    _, recorder, trainer = fit(5, plot_every=2, checkpoint_every=3)
    assert recorder.epochs_of("train") == recorder.epochs_of("test") == [1, 2, 3, 4, 5]
    assert recorder.epochs_of("plot") == [1, 2, 4, 5]
    assert recorder.epochs_of("save") == [0, 3, 5]  # the first one before the first step
    assert recorder.calls[0][0] == "save"
    assert recorder.calls[-1] == ("save", 5, 15)
    assert ("plot", 2, 5) in recorder.calls  # five samples
    assert trainer.state.epoch == 5 and trainer.state.step == 15


def test_the_first_steps_of_both_splits_have_names(fit, monkeypatch):
    shown = []
    monkeypatch.setattr("cyclegan.terminal.phase", lambda text, *_, **__: contextlib.nullcontext(shown.append(text)))
    fit(1)
    assert [*dict.fromkeys(text for text in shown if " first " in text and "step" in text)] == [
        *("Running the first step", "Running the first validation step")
    ]


def test_the_first_epochs_and_the_minutes_of_a_long_one_have_plots(fit, monkeypatch):
    _, recorder, _ = fit(12, plot_every=11)
    assert recorder.epochs_of("plot") == [1, 2, 5, 10, 11, 12] and recorder.progress["state"] == "finished"
    monkeypatch.setattr("cyclegan.training.callbacks.PREVIEW_SECONDS", 0.0)
    _, recorder, _ = fit(1)  # three steps of 3, 3 and 1 pairs
    assert recorder.epochs_of("plot") == pytest.approx([3 / 7, 6 / 7, 1])


def test_observers_are_called_after_the_checkpoint(strategies, make_images):
    recorder = Recorder()
    parts = [(make_dataset(make_images(3, 16), 1, seed), Steps(name)) for name, seed in (("train", 0), ("test", None))]
    trainer = make_trainer(strategies[1], recorder, *parts, epochs=2)
    observed = []
    trainer.observers.append(SimpleNamespace(on_epoch_end=lambda epoch: observed.append(recorder.epochs_of("save"))))
    trainer.fit()
    assert observed == [[0, 1], [0, 1, 2]]


def test_the_time_of_the_training_is_estimated(strategies, make_images, caplog, tmp_path, monkeypatch):
    """A step is counted as 2e13 operations; the CPU has reached 1e10 in a second."""
    caplog.set_level("INFO")
    (tmp_path / "weights").write_bytes(bytes(10**7))
    monkeypatch.setattr(Recorder, "newest", tmp_path)
    parts = [(make_dataset(make_images(7, 16), 1, seed), Steps(name)) for name, seed in (("train", 0), ("test", None))]
    trainer = make_trainer(strategies[1], Recorder(), *parts, epochs=4, dataset="photos", verbose=0)
    trainer.splits[0].throughput.flops, trainer.splits[0].throughput.peak = 2e13, 1e10
    trainer.fit()
    # 4 epochs x (7 + 7 / 3) steps at half of the peak; --preset fast: 100 epochs with 8.83e10 operations in a step.
    (text,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    fast = "(a new run with --preset fast: about 4.6 h)"
    assert text.startswith(
        f"4 epochs of 7 pairs (28 steps left): about 41 h on this CPU {fast}, by a count of operations. Net"
    )
    (line,) = [text for text in caplog.messages if "checkpoints" in text]
    assert re.match(r"\d epochs? of 7 pairs \(.* left\): .* on this CPU \(.*\); checkpoints take up to 0.03 GB$", line)


def test_the_time_is_estimated_in_the_first_epoch_if_it_is_shorter_than_20_steps(fit, caplog):
    fit(3)
    (line,) = [text for text in caplog.messages if "checkpoints take" in text]
    assert line.startswith("3 epochs of 7 pairs (6 steps left): less than a minute on this CPU; ")
    assert caplog.messages.index(line) < caplog.messages.index("Epoch 002/003")


@pytest.mark.parametrize(
    "seconds, text", [(0, "1 s"), (100, "100 s"), (150, "2.5 min"), (61200, "17 h"), (4e5, "4.6 days")]
)
def test_durations_have_two_digits(seconds, text):
    assert duration(seconds) == text


@pytest.mark.slow
def test_the_operations_of_the_preset_fast_are_those_that_an_estimate_assumes():
    gan = GAN(1, Config.from_settings(**PRESETS["fast"]), (128, 128))
    assert gan.objective.flops(gan.networks, 128, 128) == pytest.approx(FAST_FLOPS, rel=0.01)


def test_a_resumed_run_does_only_the_rest(fit):
    _, recorder, _ = fit(5, TrainState(epoch=3, step=9))
    assert recorder.epochs_of("train") == [4, 5] and recorder.epochs_of("save") == [4, 5]
    metrics, recorder, _ = fit(5, TrainState(epoch=5, step=15))
    assert metrics == {} and recorder.calls == []


def test_a_restored_checkpoint_is_not_saved_again(fit, monkeypatch):
    monkeypatch.setattr(Recorder, "newest", pathlib.Path("epoch_0000-1"))
    assert fit(2)[1].epochs_of("save") == [1, 2]


@pytest.mark.parametrize("batch", [1, 2, 4, 9])
def test_another_batch_size_continues_with_the_remaining_images(fit, batch):
    whole, rest = [], []
    fit(1, seen=whole)
    state = TrainState(step=1, global_batch_size=3)
    state.train.pairs_done, state.train.sums = 3, {**dict.fromkeys(LOSSES, 3.0), SAMPLES: 3.0}
    metrics, _, trainer = fit(1, state, batch=batch, seen=rest, value=2.0)
    assert rest == whole[3:]
    assert metrics["train"]["loss_G/loss"] == pytest.approx((3 * 1 + 4 * 2) / 7)
    assert trainer.state.step == 1 + -(-4 // batch)


def test_a_loss_switched_on_or_off_inside_an_epoch_has_no_mean(fit):
    state = TrainState(step=1, global_batch_size=3)
    state.train.pairs_done = 3
    state.train.sums = {**dict.fromkeys(LOSSES[1:], 3.0), "loss_X/penalty": 3.0, SAMPLES: 3.0}
    _, recorder, _ = fit(2, state)
    first, second = recorder.values_of("train")
    assert not {LOSSES[0], "loss_X/penalty"} & set(first) and first[LOSSES[1]] == pytest.approx(1)
    assert {*LOSSES} <= set(second) and second[LOSSES[0]] == pytest.approx(1)
    # All calls have the same names, so none is traced again.
    assert fit.steps["train"].names == {frozenset((*LOSSES, SAMPLES))}


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


def test_progress_bars_follow_verbose(fit, capsys):
    fit(1, verbose=0)
    assert capsys.readouterr().err == ""
    fit(1, verbose=1)
    bars = capsys.readouterr().err
    for text in ("Train: 100%", "Test: 100%", "3/3", "images/s"):
        assert text in bars


def test_a_position_beyond_the_pairs_is_refused(fit):
    state = TrainState(step=3, global_batch_size=3)
    state.train.pairs_done = 8
    with pytest.raises(UserError, match="has done 8 train pairs; expected at most 7: it belongs to another run"):
        fit(1, state)


def test_the_host_starts_the_next_calls_before_it_inspects_one(fit, monkeypatch):
    events = []
    inspect = DivergencePolicy.inspect
    monkeypatch.setattr(DivergencePolicy, "inspect", lambda *arguments: events.append("inspect") or inspect(*arguments))
    fit(1, batch=1, steps=1, log_every=100, on_call=lambda split: split == "train" and events.append("call"))
    assert events[:7] == ["call"] * 3 + ["inspect", "call", "inspect", "call"]
    assert events.count("inspect") >= 7  # all of them, at the end of the epoch


def test_lines_within_an_epoch_are_means_since_the_last_one(fit):
    _, recorder, _ = fit(2, log_every=2)
    assert [call[1:3] for call in recorder.calls if call[0] == "steps"] == [(0.85714, 2), (1.85714, 5)]
    for values in map(without_times, recorder.values_of("steps")):
        assert values == {**dict.fromkeys(LOSSES, pytest.approx(1)), **RATES}
    _, recorder, _ = fit(1, log_every=1, bad=(2,))
    assert [set(without_times(values)) for values in recorder.values_of("steps")] == [
        {*LOSSES, *RATES}, {*RATES}, {*LOSSES, *RATES}
    ]  # fmt: skip


def test_the_writer_is_closed_at_the_end(fit):
    assert fit(1)[1].is_complete
    with pytest.raises(TrainingError):
        fit(1, bad=range(99), max_bad_steps=1)
    assert not fit.recorder.is_complete and re.match("failed: .*lower --lr", fit.recorder.progress["state"])


def test_profile_covers_the_requested_steps(fit, monkeypatch, caplog):
    profiled = []
    monkeypatch.setattr(
        "tensorflow.profiler.experimental.start", lambda folder: profiled.append((folder, fit.trainer.state.step))
    )
    monkeypatch.setattr("tensorflow.profiler.experimental.stop", lambda: profiled.append(fit.trainer.state.step))
    fit(3, profile="2:5")
    assert profiled == [("nowhere", 2), 5] and not fit.warnings()
    fit(3, profile="8:12")  # training has nine steps
    assert profiled[2:] == [("nowhere", 8), 9] and not fit.warnings()
    assert "Profile of steps 9 to 9 written to nowhere/plugins/profile" in caplog.messages
    fit(3, profile="2:4", steps=3)
    assert profiled[4:] == [("nowhere", 0), 6] and not fit.warnings()
    assert "Profile of steps 1 to 6 written to" in caplog.text
    fit(3, TrainState(epoch=1, step=3, global_batch_size=3), profile="1:4")
    assert len(profiled) == 8 and not fit.warnings()


@pytest.mark.parametrize("state", [None, TrainState(epoch=1, step=3, global_batch_size=3)])
def test_a_profile_of_no_step_is_refused(fit, state):
    with pytest.raises(
        UserError, match="^--profile 9:12 profiles nothing: the run has 9 steps; expected fewer for START"
    ):
        fit(3, state, profile="9:12")


def test_checkpoints_within_an_epoch_are_minutes_apart(fit, monkeypatch):
    def steps(minutes, seconds_per_look):
        now = [0.0]

        def monotonic():
            now[0] += seconds_per_look
            return now[0]

        monkeypatch.setattr("time.monotonic", monotonic)
        _, recorder, _ = fit(1, checkpoint_minutes=minutes)
        return recorder.steps_of("save")

    # At the start, after each of three steps of training and of testing, and at the end.
    assert steps(0, 0.0) == [0, 1, 2, 3, 3, 3, 3, 3]
    assert steps(10, 0.0) == [0, 3]
    assert len(steps(10, 500.0)) > 4
