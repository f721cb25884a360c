import types

from cyclegan.config.sections import EvaluationConfig
from cyclegan.errors import TrainingError, UserError
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks.base import Epoch
from cyclegan.training.callbacks.evaluate import EvaluationCallback
from tests.training.fakes import Recorder


class Scored:
    """Stand in for an Evaluator: return the next KIDs of X -> Y and of Y -> X."""

    directions = ("x2y", "y2x")

    def __init__(self, kids, name="random"):
        self.kids, self.extractor = iter(kids), types.SimpleNamespace(name=name)

    def scores(self, direction, errors=True):
        assert not errors
        kid = next(self.kids)
        if isinstance(kid, Exception):
            raise kid
        return {"FID": 100 * kid, "KID": kid}


def of_the_best(recorder):
    return [call for call in recorder.calls if call[0].startswith("best-")]


def test_scores_are_logged_and_the_best_checkpoints_kept(fit, caplog):
    kids = [0.5, 0.9, 0.7, 0.3, 0.2, 0.4]  # of epochs 2, 4 and the last
    _, recorder, trainer = fit(5, evaluation=Scored(kids), evaluate_every=2, checkpoint_every=99)
    scores = [{k: v for k, v in values.items() if k.startswith("score/")} for values in recorder.values_of("test")]
    assert scores[0] == scores[2] == {}
    assert scores[1] == {
        "score/x2y/FID": 50, "score/x2y/KID": 0.5, "score/y2x/FID": 90, "score/y2x/KID": 0.9
    }  # fmt: skip
    assert [scores[i]["score/x2y/KID"] for i in (1, 3, 4)] == kids[::2]
    assert of_the_best(recorder) == [
        ("best-x2y", 2, {"x2y": 0.5, "y2x": 0.9}), ("best-y2x", 2, {"x2y": 0.5, "y2x": 0.9}),
        ("best-y2x", 4, {"x2y": 0.5, "y2x": 0.3}), ("best-x2y", 5, {"x2y": 0.2, "y2x": 0.3}),
    ]  # fmt: skip
    assert recorder.epochs_of("save") == [0, 2, 4, 5]  # also in epochs without a checkpoint by checkpoint_every
    assert (trainer.state.best_kid, trainer.state.best_kid_features) == ({"x2y": 0.2, "y2x": 0.3}, "random")
    assert "x2y/FID: 50  x2y/KID: 0.5  y2x/FID: 90  y2x/KID: 0.9" in caplog.messages


def test_a_resumed_run_knows_the_best_so_far(fit):
    best = {"x2y": 0.1, "y2x": 0.1}

    def state():
        return TrainState(epoch=3, step=9, best_kid=best, best_kid_features="random")

    _, recorder, _ = fit(4, state(), evaluation=Scored([0.2, 0.05]), evaluate_every=1)
    assert of_the_best(recorder) == [("best-y2x", 4, {"x2y": 0.1, "y2x": 0.05})] and not fit.warnings()
    _, recorder, _ = fit(4, state(), evaluation=Scored([0.2, 0.3], "inception"), evaluate_every=1)
    assert [call[2] for call in of_the_best(recorder)] == [{"x2y": 0.2, "y2x": 0.3}] * 2
    (warning,) = fit.warnings()
    assert "use other features from here on (random -> inception)" in warning
    _, recorder, trainer = fit(4, state())  # without scores
    assert not of_the_best(recorder) and trainer.state.best_kid == best


def test_training_continues_without_scores(fit):
    kids = [0.5, 0.5, TrainingError("a translation is not finite"), 0.4, float("nan")]
    _, recorder, trainer = fit(3, evaluation=Scored(kids), evaluate_every=1)
    assert recorder.epochs_of("test") == [1, 2, 3] and trainer.state.best_kid == {"x2y": 0.4, "y2x": 0.5}
    assert fit.warnings() == ["epoch 2 has no scores: a translation is not finite"]
    assert [sorted(k for k in values if "KID" in k) for values in recorder.values_of("test")] == [
        ["score/x2y/KID", "score/y2x/KID"], [], ["score/x2y/KID"]
    ]  # fmt: skip


def test_broken_weights_are_not_scored(fit):
    _, recorder, _ = fit(2, bad_tests=(1, 2, 3), evaluation=Scored([0.5, 0.5]), evaluate_every=1)
    assert [call[1] for call in of_the_best(recorder)] == [2, 2]


def test_an_epoch_that_could_not_be_saved_is_not_the_best(fit, monkeypatch):
    def save(self, state, is_sound=True, names=()):
        if names and state.epoch == 1:
            raise UserError("the disk is full")
        return original(self, state, is_sound, names)

    original = Recorder.save
    monkeypatch.setattr(Recorder, "save", save)
    _, recorder, _ = fit(2, evaluation=Scored([0.1, 0.1, 0.2, 0.3]), evaluate_every=1)
    assert [call[:2] for call in of_the_best(recorder)] == [("best-x2y", 2), ("best-y2x", 2)]
    assert "the disk is full. Training continues" in fit.warnings()[0]


STALLED = [0.5, 0.5, 0.6, 0.4, 0.5, 0.4, 0.7, 0.6]  # after epoch 2, no direction gets better


def test_patience_ends_training(fit, caplog):
    metrics, recorder, trainer = fit(9, evaluation=Scored(STALLED), evaluate_every=1, patience=2, plot_every=99)
    assert trainer.state.epoch == 4 and metrics["test"]["score/x2y/KID"] == 0.7
    assert recorder.epochs_of("test") == [1, 2, 3, 4] and recorder.epochs_of("plot") == [4]  # as at the end of training
    assert recorder.epochs_of("save")[-1] == 4 and not fit.warnings()
    logged = [message for message in caplog.messages if "--patience" in message or "best KID" in message]
    assert logged == [
        "Training ends after epoch 4: in the last 2 evaluations, the KID of no direction was the lowest so far (--patience 2)",
        "X -> Y: best KID 0.5 after epoch 1 (checkpoint best-x2y), last KID 0.7 after epoch 4",
        "Y -> X: best KID 0.4 after epoch 2 (checkpoint best-y2x), last KID 0.6 after epoch 4",
    ]
    end = TrainState.from_dict(recorder.saved)
    assert (end.evaluations_since_best, end.best_epoch) == (2, {"x2y": 1, "y2x": 2})
    assert fit(9, end, evaluation=Scored([]), evaluate_every=1, patience=2)[0] == {}
    assert caplog.messages == [
        "Training ended by --patience 2: raise or drop it to train longer", *(text.split(", last")[0] for text in logged[1:])
    ]  # fmt: skip
    _, recorder, trainer = fit(9, end, evaluation=Scored([1, 1] * 9), evaluate_every=1, patience=4)
    assert recorder.epochs_of("test") == [5, 6]  # the count continues


def test_patience_counts_on_in_a_resumed_run(fit):
    def state():
        best = {"best_kid": {"x2y": 0.5, "y2x": 0.4}, "best_epoch": {"x2y": 1, "y2x": 2}}
        return TrainState(epoch=3, step=9, evaluations_since_best=1, best_kid_features="random", **best)

    assert fit(9, state(), evaluation=Scored(STALLED[6:]), evaluate_every=1, patience=2)[2].state.epoch == 4
    _, _, trainer = fit(5, state(), evaluation=Scored([0.3, 1, 1, 1]), evaluate_every=1, patience=2)
    assert trainer.state.epoch == 5 and trainer.state.evaluations_since_best == 1


def test_other_workers_end_with_the_chief():
    chief = types.SimpleNamespace(broadcast_from_chief=lambda value: 1)  # it has scores, none of them the best
    epoch = Epoch(TrainState(epoch=2), False, {})
    EvaluationCallback(None, EvaluationConfig(evaluate_every=1, patience=1), chief, None).on_epoch_end(epoch)
    assert epoch.is_last and not epoch.is_best and epoch.state.evaluations_since_best == 1


def test_evaluations_without_scores_do_not_count(fit):
    kids = [0.5, 0.5, TrainingError("a translation is not finite"), 0.6, 0.6, float("nan"), 0.7]
    _, _, trainer = fit(9, evaluation=Scored(kids), evaluate_every=1, patience=2)
    assert trainer.state.epoch == 4


def test_the_last_line_names_the_best_and_the_last_epoch(fit, caplog):
    fit(3, evaluation=Scored([0.5, 0.5, 0.7, 0.3]), evaluate_every=2)
    assert caplog.messages[-2:] == [
        "X -> Y: best KID 0.5 after epoch 2 (checkpoint best-x2y), last KID 0.7 after epoch 3",
        "Y -> X: best KID 0.3 after epoch 3 (checkpoint best-y2x), last KID 0.3 after epoch 3",
    ]
