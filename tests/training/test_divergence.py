import contextlib
import types

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.errors import TrainingError
from cyclegan.methods.objective import GRADIENTS, LOSS_SCALE, SAMPLES
from cyclegan.run import metrics_log
from cyclegan.run.summaries import SummaryWriter
from cyclegan.run.train_state import PassState, TrainState
from cyclegan.training.divergence import DivergenceError, DivergencePolicy, PendingCall
from tests.training.fakes import RATES, without_times
from tests.training.helpers import LOSSES

DATASETS = {"train": types.SimpleNamespace(epoch_size=4)}


def test_a_bad_step_is_left_out_counted_and_named(fit):
    metrics, recorder, trainer = fit(2, bad=(2, 5), bad_tests=(1,))
    assert all(metrics["train"][key] == pytest.approx(1) for key in LOSSES)
    assert metrics["train"]["skipped_steps"] == 1 and recorder.values_of("test")[0]["skipped_steps"] == 1
    events = [call for call in recorder.calls if call[0] == "not finite"]
    assert [event[1:3] for event in events] == [(1, 2), (1, 3), (2, 5)]
    assert set(events[0][3]["metrics"]) == {*LOSSES, SAMPLES}
    assert events[0][3]["images"] == trainer.splits[0].dataset.batch_names(0, 3)
    warning = fit.warnings()[0]
    assert "epoch 1, step 2 (train): loss_G/loss, " in warning and events[0][3]["images"][0] in warning
    assert "nothing was updated (1 in a row)" in warning
    assert trainer.state.step == 6 and trainer.state.reshuffles == 0


@pytest.mark.parametrize("scale, diverges", [(1.0, True), (1.0000001, True), (2.0, False), (1.9999999, False)])
def test_the_search_for_the_loss_scale_is_no_divergence(fit, scale, diverges):
    _, _, trainer = fit(1, max_bad_steps=3)
    metrics = {LOSS_SCALE: scale, GRADIENTS[0]: float("nan"), LOSSES[0]: 1.0}  # the sum of the replicas' shares
    call = PendingCall("train", 0, 0, None, {name: tf.fill([3], value) for name, value in metrics.items()})
    with pytest.raises(DivergenceError) if diverges else contextlib.nullcontext():
        trainer.divergence.inspect(call, [False] * 3, trainer.state)
    assert len(fit.warnings()) == (3 if diverges else 0)
    assert trainer.state.train.skipped_steps == 3


def test_an_epoch_without_a_finite_step_has_no_means(fit):
    _, recorder, _ = fit(2, bad=(1, 2, 3))
    metrics = recorder.values_of("train")[0]
    assert set(without_times(metrics)) == {"skipped_steps", *RATES} and metrics["skipped_steps"] == 3


def test_too_many_bad_steps_go_back_and_reshuffle(fit):
    seen = []
    _, recorder, trainer = fit(3, bad=(4, 5, 6), max_bad_steps=3, seen=seen)  # the second epoch
    kinds = [call[:3] for call in recorder.calls if call[0] in ("rewind", "went back", "save")]
    first, rest = [("save", 0, 0), ("save", 1, 3)], [("save", 2, 6), ("save", 3, 9)]
    assert kinds == [*first, ("rewind", 1), ("went back", 2, 3), *rest]
    assert "goes back to checkpoint of step 3" in fit.warnings()[-1]
    assert trainer.state.reshuffles == 1 and trainer.state.step == 9
    first_try, second_try = seen[7:14], seen[14:21]
    assert first_try != second_try
    assert recorder.epochs_of("train") == [1, 2, 3]


def test_no_checkpoint_is_saved_between_a_bad_step_and_the_next_good_one(fit):
    def saves():
        return [call[1:] for call in fit.recorder.calls if call[0] == "save"]

    fit(2, bad=(2,), checkpoint_minutes=0)
    assert saves()[:3] == [(0, 0), (0, 1), (0, 3)]
    fit(2, bad=(3,))  # the last one of an epoch: testing shows that the weights are sound
    assert saves() == [(0, 0), (1, 3), (2, 6)]
    fit(2, bad_tests=(3, 6))  # single test steps
    assert saves() == [(0, 0), (1, 3), (2, 6)]
    fit(2, bad_tests=(1, 2, 3))  # the weights seem broken until the next step
    assert saves() == [(0, 0), (1, 4), (2, 6)]
    with pytest.raises(TrainingError, match="the last steps were not finite, so the end of training is not saved"):
        fit(1, bad_tests=(1, 2, 3))
    assert saves() == [(0, 0)]


def test_bad_steps_in_a_row_may_span_epochs(fit):
    _, recorder, _ = fit(4, bad=(6, 7, 8), max_bad_steps=3)  # with good test steps in between
    assert ("went back", 3, 6) in [call[:3] for call in recorder.calls]
    _, recorder, _ = fit(4, bad_tests=(5, 6, 7), max_bad_steps=3)
    assert "went back" in [call[0] for call in recorder.calls]


def test_the_second_time_training_stops(fit):
    with pytest.raises(TrainingError, match=r"loss_G/loss, .* not finite, with .*diverged again.*lower --lr"):
        fit(2, bad=range(2, 99), max_bad_steps=2)
    assert fit.recorder.epochs_of("save") == [0]
    assert TrainingError.exit_code == 1


@pytest.mark.parametrize("is_good", [True, False])
def test_training_goes_back_behind_a_checkpoint_whose_weights_may_be_broken(is_good):
    """Save after step 9, within an epoch; the step after it is finite or not."""
    calls, saved = [], TrainState(epoch=2, step=9, train=PassState(pairs_done=3))
    checkpoints = types.SimpleNamespace(restore=lambda **options: calls.append(options) or (saved, "epoch_0002"))
    summary = types.SimpleNamespace(rewind=lambda *_: None, write_event=lambda *_, **__: None)
    policy = DivergencePolicy(3, DATASETS, checkpoints, summary, tf.distribute.get_strategy())
    policy.inspect(PendingCall("train", 0, 8 + is_good, None, {}), [True], saved)
    policy.go_back(TrainState(nonfinite_train=["epoch 3, step 11"]))
    assert calls == ([{}] if is_good else [{}, {"newest_last": True}])


def test_going_back_behind_a_change_of_settings_logs_it_again(tmp_path):
    """The run resumed with another learning rate, and goes back to the checkpoint that it resumed from."""
    now = TrainState(settings=Config.from_settings(lr=0.5).settings(), images={"trainA bytes": "3 bytes"})
    now.nonfinite_train = ["epoch 3, step 11"]
    saved = TrainState(settings=Config.from_settings().settings(), images={"trainA bytes": "2 bytes"})
    saved.epoch, saved.train.pairs_done = 2, 3
    checkpoints = types.SimpleNamespace(restore=lambda **_: (saved, "epoch_0002-1"))
    policy = DivergencePolicy(3, DATASETS, checkpoints, SummaryWriter(tmp_path), tf.distribute.get_strategy())
    restored = policy.go_back(now)
    changes, _ = metrics_log.read(tmp_path / "metrics.jsonl")
    assert changes["changes"] == ["lr 0.0002 -> 0.5", "images of trainA 2 bytes -> 3 bytes"]
    assert (changes["split"], changes["epoch"]) == ("steps", 2.75)
    assert (restored.settings, restored.images) == (now.settings, now.images)


def test_there_may_be_no_checkpoint_to_go_back_to():
    checkpoints = types.SimpleNamespace(restore=lambda: None)
    policy = DivergencePolicy(3, {}, checkpoints, None, tf.distribute.get_strategy())
    with pytest.raises(TrainingError, match="there is no checkpoint to go back to"):
        policy.go_back(TrainState(nonfinite_train=["epoch 3, step 9"]))
