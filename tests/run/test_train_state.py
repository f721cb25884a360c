import dataclasses

import pytest

from cyclegan.errors import UserError
from cyclegan.run.train_state import PassState, TrainState


def in_the_middle():
    """Return a state in the middle of an epoch, in which no field has its default."""
    return TrainState(
        epoch=3,
        step=40,
        reshuffles=1,
        global_batch_size=6,
        log_bytes=1234,
        train=PassState(pairs_done=12, sums={"loss_G/loss": 0.1 + 0.2, "samples": 12}, seconds=2.5, skipped_steps=1),
        test=PassState(pairs_done=6, sums={"samples": 6.0}, seconds=0.5, skipped_steps=2),
        logged_sums={"loss_G/loss": 1.0},
        warned=["G inverts"],
        nonfinite_train=["epoch 4, step 40"],
        nonfinite_test=["epoch 4, step 39", "epoch 4, step 39"],
        failing={"D_X has won": 2},
        best_kid={"x2y": -0.01},
        best_kid_features="random",
        best_epoch={"x2y": 2},
        evaluations_since_best=1,
    )


@pytest.mark.parametrize("state", [TrainState(), in_the_middle()])
def test_a_state_survives_json(state):
    again = TrainState.from_json(state.to_json())
    assert again == state and isinstance(again.train, PassState) and isinstance(again.test, PassState)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"train": 1, "test": 2}'])
def test_other_json_is_refused(text):
    with pytest.raises(UserError, match="expected a checkpoint of this version"):
        TrainState.from_json(text)


def test_next_epoch_resets_the_passes_and_keeps_the_rest():
    state = in_the_middle()
    state.next_epoch()
    reset = {"train": PassState(), "test": PassState(), "logged_sums": {}}
    assert state == dataclasses.replace(in_the_middle(), epoch=4, **reset)
    state.train.sums["samples"] = 1  # no two passes share their sums
    assert state.test.sums == {} and TrainState().train.sums == {}


def test_training_is_done_after_its_epochs_or_its_patience():
    state = TrainState(epoch=3, evaluations_since_best=2)
    assert state.is_done(3) and not state.is_done(4)
    assert state.is_done(4, patience=2) and not state.is_done(4, patience=3)
