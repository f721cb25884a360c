import pathlib

import pytest

from cyclegan.errors import UserError
from cyclegan.methods.cyclegan import LOSSES
from cyclegan.methods.metric_names import CHANGES, ERRORS, SAMPLES
from cyclegan.run.train_state import TrainState
from cyclegan.training import in_flight
from tests.training.fakes import Recorder, calls_without_times, without_times


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


@pytest.mark.parametrize("options", [{}, {"bad": (2, 5)}, {"bad": (2, 5), "steps": 2}])
def test_inspecting_calls_later_changes_nothing(fit, monkeypatch, options):
    def written(ahead):
        monkeypatch.setattr(in_flight, "AHEAD", ahead)
        metrics, recorder, trainer = fit(3, **options)
        values = {split: without_times(values) for split, values in metrics.items()}
        return calls_without_times(recorder), fit.warnings(), trainer.state.step, values

    assert written(0) == written(2) == written(5)


def test_plots_and_checkpoints_follow_their_intervals(fit):
    _, recorder, trainer = fit(5, plot_every=2, checkpoint_every=3)
    assert recorder.epochs_of("train") == recorder.epochs_of("test") == [1, 2, 3, 4, 5]
    assert recorder.epochs_of("plot") == [2, 4, 5]
    assert recorder.epochs_of("save") == [0, 3, 5]  # the first one before the first step
    assert recorder.calls[0][0] == "save"
    assert recorder.calls[-1] == ("save", 5, 15)
    assert ("plot", 2, 5) in recorder.calls  # five samples
    assert trainer.state.epoch == 5 and trainer.state.step == 15


def test_a_resumed_run_does_only_the_rest(fit):
    _, recorder, _ = fit(5, TrainState(epoch=3, step=9))
    assert recorder.epochs_of("train") == [4, 5] and recorder.epochs_of("save") == [4, 5]
    metrics, recorder, _ = fit(5, TrainState(epoch=5, step=15))
    assert metrics == {} and recorder.calls == []


def test_a_restored_checkpoint_is_not_saved_again(fit, monkeypatch):
    monkeypatch.setattr(Recorder, "restored", pathlib.Path("epoch_0000-1"))
    assert fit(2)[1].epochs_of("save") == [1, 2]


def test_the_log_is_closed_if_the_first_checkpoint_fails(fit, monkeypatch):
    def fail(*_):
        raise UserError("no space left")

    monkeypatch.setattr(Recorder, "save", fail)
    with pytest.raises(UserError, match="no space left"):
        fit(2)
    assert fit.recorder.is_complete is False


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
