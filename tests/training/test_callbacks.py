import types

import numpy as np
import pytest

from cyclegan.config import Config
from cyclegan.config.sections import EvaluationConfig
from cyclegan.data import sources
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.images import reader
from cyclegan.run.summaries import SummaryWriter
from cyclegan.run.train_state import TrainState
from cyclegan.training.callbacks import (
    Epoch,
    EvaluationCallback,
    PlotCallback,
    find_collapse,
    find_silent_failures,
    load_samples,
)
from tests.images.dicom_samples import twelve_bits
from tests.images.samples import deep_png
from tests.training.fakes import Recorder, Scored, fake_model


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
    def save(self, state, names=()):
        if names and state.epoch == 1:
            raise UserError("the disk is full")
        return original(self, state, names)

    original = Recorder.save
    monkeypatch.setattr(Recorder, "save", save)
    _, recorder, _ = fit(2, evaluation=Scored([0.1, 0.1, 0.2, 0.3]), evaluate_every=1)
    assert [call[:2] for call in of_the_best(recorder)] == [("best-x2y", 2), ("best-y2x", 2)]
    assert "the disk is full. Training continues" in fit.warnings()[0]


STALLED = [0.5, 0.5, 0.6, 0.4, 0.5, 0.4, 0.7, 0.6]  # after epoch 2, no direction gets better


def test_patience_ends_training(fit, caplog):
    metrics, recorder, trainer = fit(9, evaluation=Scored(STALLED), evaluate_every=1, patience=2, plot_every=99)
    assert trainer.state.epoch == 4 and metrics["test"]["score/x2y/KID"] == 0.7
    assert recorder.epochs_of("test") == [1, 2, 3, 4] and recorder.epochs_of("plot") == [1, 2, 4]  # as at the end
    assert recorder.epochs_of("save")[-1] == 4 and not fit.warnings()
    logged = [message for message in caplog.messages if "--patience" in message or "best KID" in message]
    assert logged == [
        "Training ends after epoch 4: in the last 2 evaluations, the KID of no direction was the lowest so far"
        " (--patience 2)",
        "X -> Y: best KID 0.5 after epoch 1 (checkpoint best-x2y), last KID 0.7 after epoch 4",
        "Y -> X: best KID 0.4 after epoch 2 (checkpoint best-y2x), last KID 0.6 after epoch 4",
    ]
    end = recorder.saved
    assert (end.evaluations_since_best, end.best_epoch) == (2, {"x2y": 1, "y2x": 2})
    assert fit(9, end, evaluation=Scored([]), evaluate_every=1, patience=2)[0] == {}
    assert caplog.messages == [
        "Training ended by --patience 2: raise or drop it to train longer",
        *(text.split(", last")[0] for text in logged[1:]),
    ]
    _, recorder, trainer = fit(9, end, evaluation=Scored([1, 1] * 9), evaluate_every=1, patience=4)
    assert recorder.epochs_of("test") == [5, 6]  # the count continues


def test_scores_of_few_images_choose_nothing(fit):
    few = Scored([0.5, 0.5] * 4, is_reliable=False)
    metrics, _, trainer = fit(4, evaluation=few, evaluate_every=1, patience=1, plot_every=99)
    assert trainer.state.epoch == 4 and metrics["test"]["score/x2y/KID"] == 0.5
    assert (trainer.state.best_kid, trainer.state.evaluations_since_best) == ({}, 0)


def test_other_workers_end_with_the_chief():
    chief = types.SimpleNamespace(broadcast_from_chief=lambda value: 1)  # it has scores, none of them the best
    epoch = Epoch(TrainState(epoch=2), False, {})
    EvaluationCallback(None, EvaluationConfig(evaluate_every=1, patience=1), chief).on_epoch_end(epoch)
    assert epoch.is_last and not epoch.is_best and epoch.state.evaluations_since_best == 1


def test_evaluations_without_scores_do_not_count(fit):
    kids = [0.5, 0.5, TrainingError("a translation is not finite"), 0.6, 0.6, float("nan"), 0.7]
    _, _, trainer = fit(9, evaluation=Scored(kids), evaluate_every=1, patience=2)
    assert trainer.state.epoch == 4


def test_samples_are_the_first_held_out_images(make_images):
    x, y = make_images(7, 16, seed=1), make_images(6, 16, seed=2)
    model, written = fake_model(G=lambda x: x / 2, F=lambda y: y + 1), []
    summary = types.SimpleNamespace(write_cycles=lambda *arguments: written.append(arguments))
    callback = PlotCallback(model, UnpairedDataset(x, y, 3, (16, 16)), summary, 9)
    callback.on_epoch_end(Epoch(TrainState(epoch=9), False, {}))
    ((epoch, forward, backward, names),) = written
    assert epoch == 9 and names == [[f"{domain}[{i}]" for i in range(5)] for domain in "XY"]
    real_x, real_y = (images[:5] / 127.5 - 1 for images in (x, y))
    np.testing.assert_allclose(forward, [real_x, real_x / 2, real_x / 2 + 1], atol=1e-6)
    np.testing.assert_allclose(backward, [real_y, real_y + 1, (real_y + 1) / 2], atol=1e-6)


def test_samples_of_a_run_with_a_range_show_the_range(tmp_path):
    for name in ("trainA", "trainB", "testA", "testB"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.png").write_bytes(deep_png(twelve_bits(16, 16)[..., np.newaxis]))
    settings = {"dataset": str(tmp_path), "preprocess": "none", "channels_x": 1, "channels_y": 1, "image_size": 16}
    config = Config.from_settings(value_range_x="0:4095", value_range_y="0:8190", **settings)
    domains = sources.load_domains(config.data, config.networks.multiple, splits=sources.TEST_SPLITS)
    dataset = UnpairedDataset(domains.test_x, domains.test_y, 1, domains.size)
    (x, y), _ = load_samples(dataset)
    np.testing.assert_allclose(x[0, ..., 0], twelve_bits(16, 16) / 2047.5 - 1, atol=1e-4)
    np.testing.assert_allclose(y[0, ..., 0], twelve_bits(16, 16) / 4095 - 1, atol=1e-4)
    SummaryWriter(tmp_path / "run").write_cycles(1, (x, y), (y, x), dataset.names)
    shown = reader.decode(tmp_path / "run/samples/epoch_001/fake_x_1.png", 1)
    np.testing.assert_allclose(shown[..., 0], twelve_bits(16, 16) / 4095 * 255, atol=0.51)


def test_a_collapsed_generator_is_reported_once(make_images, caplog):
    """Translate all images of X to nearly one image; those of Y stay different."""
    x, y = make_images(5, 16, seed=1), make_images(5, 16, seed=2)
    model = fake_model(G=lambda x: 0.01 * x, F=lambda y: y)
    events = []
    summary = types.SimpleNamespace(write_cycles=lambda *_: None, write_event=lambda *event, text: events.append(event))
    callback, state = PlotCallback(model, UnpairedDataset(x, y, 5, (16, 16)), summary, 99), TrainState(epoch=3)
    for step in (499, 500, 501):  # networks do so before they have learned anything
        state.step = step
        callback.on_epoch_end(types.SimpleNamespace(state=state, is_last=step == 499))
    assert events == [("test", 3, 500, "G has collapsed")] and len(caplog.records) == 1
    assert "epoch 3: G(x) is nearly the same for all 5 sample images" in caplog.text


# Metrics of an epoch in which all is well.
TRAIN = {"loss_X/loss": 0.2, "loss_Y/loss": 0.2, "loss_G/loss": 0.3, "loss_F/loss": 0.3}
TEST = {
    "change/MAE(X, G(X))": 0.3,
    "change/MAE(Y, F(Y))": 0.3,
    "change/correlation(X, G(X))": 0.7,
    "change/correlation(Y, F(Y))": 0.7,
}


def names(train=(), test=()):
    return list(find_silent_failures({**TRAIN, **dict(train)}, {**TEST, **dict(test)}))


@pytest.mark.parametrize(
    "split, metric, bad, still_good, name",
    [
        ("test", "change/MAE(X, G(X))", 0.0099, 0.01, "G does nothing"),
        ("test", "change/MAE(Y, F(Y))", 0.0099, 0.01, "F does nothing"),
        ("test", "change/correlation(X, G(X))", -0.501, -0.5, "G inverts"),
        ("test", "change/correlation(Y, F(Y))", -0.501, -0.5, "F inverts"),
        ("train", "loss_X/loss", 0.0099, 0.01, "D_X has won"),
        ("train", "loss_Y/loss", 0.0099, 0.01, "D_Y has won"),
    ],
)
def test_each_threshold_raises_its_warning(split, metric, bad, still_good, name):
    assert names(**{split: {metric: bad}}) == [name]
    assert names(**{split: {metric: still_good}}) == []


def test_a_wgan_gp_critic_cannot_win():
    train = {"loss_X/loss": -3.0, "loss_Y/loss": 0.0}
    assert set(find_silent_failures(train, {})) == {"D_X has won", "D_Y has won"}
    assert not find_silent_failures(train, {}, "wgan-gp")


def test_each_failure_is_reported_once(fit):
    fit(2, value=0.005)
    assert len(fit.warnings()) == 2  # a discriminator may recover
    _, recorder, trainer = fit(4, value=0.005)
    assert [text[:9] for text in fit.warnings()][-4:] == ["epoch 1: ", "epoch 1: ", "epoch 3: ", "epoch 3: "]
    assert set(trainer.state.warned) == {"G does nothing", "F does nothing", "D_X has won", "D_Y has won"}
    assert recorder.epochs_of("G does nothing") == [1]
    fit(2, TrainState(epoch=1, step=3, warned=trainer.state.warned), value=0.005)
    assert not fit.warnings()


def test_texts_without_a_cycle_name_no_flags_of_it():
    test = {key: -1.0 if "correlation" in key else 0.0 for key in TEST if "F(Y)" not in key}
    texts = find_silent_failures({}, test, has_cycle=False)
    assert list(texts) == ["G does nothing", "G inverts"]
    assert not any("lambda" in text or "cycle" in text for text in texts.values())


def test_collapse_compares_distances():
    images = np.stack([np.full((4, 4, 3), value, np.float32) for value in (-0.5, 0.0, 0.5)])
    assert not find_collapse("G", images, 0.1 * images, images)
    found = find_collapse("F", images, 0.0999 * images, images)
    assert list(found) == ["F has collapsed"]
    assert "differ by 85.0 of 255 gray levels on average, their translations by 8.5, real" in found["F has collapsed"]
    assert not find_collapse("G", images, 0.0999 * images, 0.9 * images)  # the targets differ less
    assert not find_collapse("G", images[:1], 0 * images[:1], images)  # one image
    assert not find_collapse("G", 0.01 * images, 0 * images, images)  # the images are alike
    assert not find_collapse("G", images, 0 * images, 0.01 * images)  # the targets are alike
    assert not find_collapse("G", images, np.nan * images, images)


BEST = "X -> Y: best KID 0.5 after epoch 1 (checkpoint best-x2y)"


def test_an_epoch_is_reported_in_five_lines(fit, caplog):
    fit(1, verbose=1)
    assert caplog.messages[:4] == [
        "Epoch 001/001",
        "Losses (training): G 1.0000  F 1.0000  D_X 1.0000  D_Y 1.0000",
        "Held-out MAE(X, F(G(X))): 1.0000  MAE(X, F(X)): 1.0000",
        "Held-out MAE(Y, G(F(Y))): 1.0000  MAE(Y, G(Y)): 1.0000",
    ]
    assert caplog.messages[4].startswith("Elapsed: ") and len(caplog.messages) == 5
    assert {record.levelname for record in caplog.records} == {"INFO"}


def test_verbose_2_reports_all_losses(fit, caplog):
    fit(1, verbose=2)
    assert "train: loss_G/loss 1.0000  loss_G/cycle 1.0000" in caplog.text


def test_a_finished_run_reports_the_best_again(fit, caplog):
    state = TrainState(epoch=2, step=6, best_kid={"x2y": 0.5}, best_epoch={"x2y": 1})
    fit(2, state)
    assert caplog.messages == [BEST]
