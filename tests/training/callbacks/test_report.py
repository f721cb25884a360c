import math

from cyclegan.run.train_state import TrainState
from tests.training.callbacks.test_evaluate import Scored

BEST = "X -> Y: best KID 0.5 after epoch 1 (checkpoint best-x2y)"


def test_an_epoch_is_reported_in_four_lines(fit, caplog):
    fit(1, verbose=1)
    assert caplog.messages[:3] == [
        "Epoch 001/001",
        "MAE(X, F(G(X))): 1.0000  MAE(X, F(X)): 1.0000",
        "MAE(Y, G(F(Y))): 1.0000  MAE(Y, G(Y)): 1.0000",
    ]
    assert caplog.messages[3].startswith("Elapsed: ") and len(caplog.messages) == 4
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_verbose_2_reports_all_losses(fit, caplog):
    fit(1, verbose=2)
    assert "train: loss_G/loss 1.0000  loss_G/cycle 1.0000" in caplog.text


def test_the_best_is_reported_without_a_last_score(fit, caplog):
    fit(2, evaluation=Scored([0.5, 0.4, math.nan, 0.6]), evaluate_every=1)
    assert [message for message in caplog.messages if "best KID" in message] == [
        BEST, "Y -> X: best KID 0.4 after epoch 1 (checkpoint best-y2x), last KID 0.6 after epoch 2"
    ]  # fmt: skip


def test_a_finished_run_reports_the_best_again(fit, caplog):
    state = TrainState(epoch=2, step=6, best_kid={"x2y": 0.5}, best_epoch={"x2y": 1})
    fit(2, state)
    assert caplog.messages == [BEST]
