import contextlib
import types

import numpy as np
import pytest
import tensorflow as tf

from cyclegan.checkpointing.train_state import TrainState
from cyclegan.config import Config
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import TrainingError, UserError
from cyclegan.training import trainer as trainer_module
from cyclegan.training.metric_names import CHANGES, ERRORS, GRADIENTS, LOSS_SCALE, LOSSES, SAMPLES
from cyclegan.training.trainer import Diverged, Trainer, plot, time


class Recorder:
    """Stands for the Summary and the Checkpoints of a run: writes down what is asked of them."""

    log_bytes = 0
    restored = None
    folder = "nowhere"

    def __init__(self):
        self.calls = []

    def write_scalars(self, split, epoch, step, values):
        self.calls.append((split, epoch, step, values))

    def write_event(self, split, epoch, step, event, **details):
        self.calls.append((event, epoch, step, details))

    def rewind(self, log_bytes, epoch, step):
        self.calls.append(("rewind", epoch, step))

    def write_cycles(self, epoch, forward, backward, names):
        self.calls.append(("plot", epoch, len(forward[0])))

    def flush(self):
        return True

    def all(self):
        return ["a checkpoint"]

    def save(self, progress, sound=True, names=()):
        self.saved = progress.to_dict()
        self.calls.append(("save", progress.epoch, progress.step))
        self.calls += [(name, progress.epoch, dict(progress.best_kid)) for name in names]
        return f"checkpoint of step {progress.step}"

    def restore(self):
        return TrainState.from_dict(self.saved), f"checkpoint of step {self.saved['step']}"

    def of(self, kind):
        return [call[1] for call in self.calls if call[0] == kind]

    def values(self, kind):
        return [call[3] for call in self.calls if call[0] == kind]


def without_speed(values):
    return {key: value for key, value in values.items() if not key.startswith("speed/")}


RATES = {"learning_rate": 0.5, "learning_rate_discriminators": 0.25}


@pytest.fixture
def fit(strategies, make_images):
    """A function that trains on 7 pairs in batches of 3, with steps that return the value given for every sample.

    `bad` says which train steps, counted over all that are ever taken, are not finite, `bad_tests` which test steps.
    """

    def run(epochs, progress=None, value=1.0, bad=(), bad_tests=(), batch=3, seen=None, steps=1, began=id, **options):
        gan = types.SimpleNamespace(
            config=Config.from_settings(),
            flops=lambda height, width: 1e9,
            metric_names={"train": LOSSES, "test": LOSSES + ERRORS + CHANGES},
            cycle=lambda x, y: [tf.constant(x), tf.constant(x), tf.constant(y), tf.constant(y)],
        )
        train, test = (
            UnpairedDataset(make_images(7, 16), make_images(7, 16), batch, (16, 16), seed, None, steps)
            for seed in (0, None)
        )
        counts = {"train": 0, "test": 0}
        run.summed = summed = {"train": set(), "test": set()}

        def step(split, skipped):
            def run(batches, totals, steps, *_):
                began(split)
                summed[split].add(frozenset(totals))
                good, figures = [], []
                for x, _, weight in list(zip(*batches))[: int(steps)]:
                    counts[split] += 1
                    good.append(counts[split] not in skipped)
                    if seen is not None and split == "train":
                        seen.extend(image.numpy().tobytes() for image, w in zip(x, weight) if w)
                    figures.append(value if good[-1] else float("nan"))
                    samples = float(good[-1]) * tf.reduce_sum(tf.cast(weight, tf.float64))
                    totals = {k: v + (1 if k == SAMPLES else value) * samples for k, v in totals.items()}
                return totals, tf.constant(good), dict.fromkeys(totals, tf.constant(figures))

            return run

        run.said, run.recorder = said, recorder = [], Recorder()
        run.loop = Trainer(
            gan, train, test, step("train", bad), step("test", bad_tests), lambda done: (0.5, 0.25), strategies[1],
            recorder, recorder, progress or TrainState(), epochs, **{"verbose": 0, "say": said.append, **options},
        )  # fmt: skip
        return run.loop.fit(), recorder, run.loop

    return run


def test_figures_are_exact_means_over_the_samples_whatever_the_last_batch(fit):
    figures, _, _ = fit(1)  # three batches of 3, 3 and 1 samples; every sample's loss is 1
    assert all(figures["train"][key] == pytest.approx(1) for key in LOSSES)
    assert all(figures["test"][key] == pytest.approx(1) for key in LOSSES + ERRORS + CHANGES)
    assert figures["train"]["learning_rate"] == 0.5
    for split in ("train", "test"):
        # Of the two steps after the first one, with 4 pairs, in which TensorFlow traces.
        rate, milliseconds = (figures[split][f"speed/{name}"] for name in ("images_per_second", "ms_per_step"))
        assert rate == pytest.approx(8 / (2 * milliseconds / 1000)) and milliseconds < 1000 * figures[split]["seconds"]
        assert figures[split]["skipped_steps"] == 0


@pytest.mark.parametrize("options", [{}, {"bad": (2, 5)}, {"bad": (4, 5, 6), "max_bad_steps": 3, "bad_tests": (1,)}])
def test_calls_of_several_steps_write_what_single_steps_write(fit, options):
    def written(steps):
        _, recorder, done = fit(3, steps=steps, log_every=6, **options)
        calls = [(*call[:3], without_speed(call[3])) if len(call) > 3 else call for call in recorder.calls]
        for values in (call[3] for call in calls if len(call) > 3):
            for name in ("seconds", "epoch_seconds"):
                values.pop(name, None)
        return calls, fit.said, done.progress.step

    assert written(1) == written(2) == written(3) == written(6)


@pytest.mark.parametrize("options", [{}, {"bad": (2, 5)}, {"bad": (2, 5), "steps": 2}])
def test_looking_at_the_figures_of_a_call_later_changes_nothing(fit, monkeypatch, options):
    def written(ahead):
        monkeypatch.setattr(trainer_module, "AHEAD", ahead)
        figures, recorder, done = fit(3, **options)
        calls = [(*call[:3], without_speed(call[3])) if len(call) > 3 else call for call in recorder.calls]
        for values in (*(call[3] for call in calls if len(call) > 3), *figures.values()):
            for name in ("seconds", "epoch_seconds"):
                values.pop(name, None)
        return calls, fit.said, done.progress.step, {split: without_speed(values) for split, values in figures.items()}

    assert written(0) == written(2) == written(5)


def test_the_host_looks_at_a_call_after_it_has_started_the_next_ones(fit, monkeypatch):
    events = []
    look_at = Trainer._look_at
    monkeypatch.setattr(Trainer, "_look_at", lambda self, *of: events.append("look") or look_at(self, *of))
    fit(1, batch=1, steps=1, log_every=100, began=lambda split: split == "train" and events.append("call"))
    assert events[:7] == ["call"] * 3 + ["look", "call", "look", "call"]
    assert events.count("look") >= 7  # all of them, at the end of the epoch


def test_a_picture_that_can_not_be_read_any_more_ends_training_with_a_checkpoint(fit):
    fit(1)
    domain = fit.loop.train.domains[0]

    class Gone:
        shape, dtype, failure = domain.shape, domain.dtype, None

        def __len__(self):
            return len(domain)

        def __getitem__(self, index):
            if index == 2:
                self.failure = "a picture does not decode any more: two.jpg; repair it or put it back"
                raise TrainingError(self.failure)
            return domain[index]

    fit.loop.train.domains = (Gone(), fit.loop.train.domains[1])
    fit.loop.progress = TrainState()
    fit.recorder.calls.clear()
    with pytest.raises(TrainingError, match="two.jpg; repair it or put it back"):
        fit.loop.fit()
    place = fit.recorder.saved["train"]
    assert place["pairs_done"] == place["sums"][SAMPLES] == place["sums"]["loss_G/loss"]
    saves = [call[2] for call in fit.recorder.calls if call[0] == "save"]
    assert saves[0] == 0 and saves[-1] == fit.loop.progress.step < 3


def test_profile_covers_the_requested_steps(fit, monkeypatch, caplog):
    caplog.set_level("INFO")
    done = []
    monkeypatch.setattr(
        "tensorflow.profiler.experimental.start", lambda folder: done.append((folder, fit.loop.progress.step))
    )
    monkeypatch.setattr("tensorflow.profiler.experimental.stop", lambda: done.append(fit.loop.progress.step))
    fit(3, profile=(2, 5))
    assert done == [("nowhere", 2), 5] and not fit.said
    fit(3, profile=(8, 12), verbose=1)  # of which there are nine
    told = "Profile of steps 9 to 9 written to nowhere/plugins/profile"
    assert done[2:] == [("nowhere", 8), 9] and told in caplog.messages and not fit.said
    fit(3, profile=(2, 4), steps=3, verbose=1)
    assert done[4:] == [("nowhere", 0), 6] and "Profile of steps 1 to 6 written to" in caplog.text
    assert not fit.said
    fit(3, profile=(9, 12))
    assert fit.said == ["--profile 9:12 profiles nothing: the steps to come are 1 to 9, counted over the whole run"]
    place = TrainState(epoch=1, step=3, global_batch_size=3)
    fit(3, place, profile=(1, 3))
    assert fit.said == ["--profile 1:3 profiles nothing: the steps to come are 4 to 9, counted over the whole run"]
    fit(3, TrainState(epoch=1, step=3, global_batch_size=3), profile=(1, 4))
    assert len(done) == 8 and not fit.said


def test_things_happen_every_so_many_epochs_and_at_the_end(fit):
    _, recorder, done = fit(5, plot_every=2, checkpoint_every=3)
    assert recorder.of("train") == recorder.of("test") == [1, 2, 3, 4, 5]
    assert recorder.of("plot") == [2, 4, 5]
    assert recorder.of("save") == [0, 3, 5]  # the first one before the first step
    assert recorder.calls[-1] == ("save", 5, 15)
    assert ("plot", 2, 5) in recorder.calls  # five samples
    assert done.progress.epoch == 5 and done.progress.step == 15


class Scored:
    """Stands for an Evaluation: gives the KIDs of X -> Y and of Y -> X that come next."""

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


def test_scores_are_logged_and_the_best_of_each_direction_are_kept(fit, capsys):
    kids = [0.5, 0.9, 0.7, 0.3, 0.2, 0.4]  # of epochs 2, 4 and the last
    _, recorder, done = fit(5, evaluation=Scored(kids), evaluate_every=2, checkpoint_every=99, verbose=1)
    scores = [{k: v for k, v in values.items() if k.startswith("score/")} for values in recorder.values("test")]
    assert scores[0] == scores[2] == {}
    assert scores[1] == {
        "score/x2y/FID": 50, "score/x2y/KID": 0.5, "score/y2x/FID": 90, "score/y2x/KID": 0.9
    }  # fmt: skip
    assert [scores[i]["score/x2y/KID"] for i in (1, 3, 4)] == kids[::2]
    assert of_the_best(recorder) == [
        ("best-x2y", 2, {"x2y": 0.5, "y2x": 0.9}), ("best-y2x", 2, {"x2y": 0.5, "y2x": 0.9}),
        ("best-y2x", 4, {"x2y": 0.5, "y2x": 0.3}), ("best-x2y", 5, {"x2y": 0.2, "y2x": 0.3}),
    ]  # fmt: skip
    assert recorder.of("save") == [0, 2, 4, 5]  # also where checkpoint_every does not ask for one
    assert (done.progress.best_kid, done.progress.best_kid_features) == ({"x2y": 0.2, "y2x": 0.3}, "random")
    assert "x2y/FID: 50  x2y/KID: 0.5  y2x/FID: 90  y2x/KID: 0.9" in capsys.readouterr().out


def test_a_resumed_run_knows_the_best_so_far(fit):
    place = {"epoch": 3, "step": 9, "best_kid": {"x2y": 0.1, "y2x": 0.1}, "best_kid_features": "random"}
    _, recorder, _ = fit(4, TrainState(**place), evaluation=Scored([0.2, 0.05]), evaluate_every=1)
    assert of_the_best(recorder) == [("best-y2x", 4, {"x2y": 0.1, "y2x": 0.05})] and not fit.said
    _, recorder, _ = fit(4, TrainState(**place), evaluation=Scored([0.2, 0.3], "inception"), evaluate_every=1)
    assert [call[2] for call in of_the_best(recorder)] == [{"x2y": 0.2, "y2x": 0.3}] * 2
    assert len(fit.said) == 1 and "by other features from here on (random -> inception)" in fit.said[0]
    _, recorder, done = fit(4, TrainState(**place))  # not scored any more
    assert not of_the_best(recorder) and done.progress.best_kid == place["best_kid"]


def test_without_scores_training_goes_on(fit):
    kids = [0.5, 0.5, TrainingError("a translation is not finite"), 0.4, float("nan")]
    _, recorder, done = fit(3, evaluation=Scored(kids), evaluate_every=1)
    assert recorder.of("test") == [1, 2, 3] and done.progress.best_kid == {"x2y": 0.4, "y2x": 0.5}
    assert fit.said == ["epoch 2 has no scores: a translation is not finite"]
    assert [sorted(k for k in values if "KID" in k) for values in recorder.values("test")] == [
        ["score/x2y/KID", "score/y2x/KID"], [], ["score/x2y/KID"]
    ]  # fmt: skip
    # Where the weights are broken, or so it seems, nothing is scored.
    _, recorder, done = fit(2, bad_tests=(1, 2, 3), evaluation=Scored([0.5, 0.5]), evaluate_every=1)
    assert [call[1] for call in of_the_best(recorder)] == [2, 2]


def test_what_could_not_be_saved_is_not_the_best(fit, monkeypatch):
    def save(self, progress, sound=True, names=()):
        if names and progress.epoch == 1:
            raise UserError("the disk is full")
        return original(self, progress, sound, names)

    original = Recorder.save
    monkeypatch.setattr(Recorder, "save", save)
    _, recorder, _ = fit(2, evaluation=Scored([0.1, 0.1, 0.2, 0.3]), evaluate_every=1)
    assert [call[:2] for call in of_the_best(recorder)] == [("best-x2y", 2), ("best-y2x", 2)]
    assert "the disk is full. Training goes on" in fit.said[0]


def test_single_steps_are_logged_as_means_since_the_last_line(fit):
    _, recorder, _ = fit(2, log_every=2)
    assert [call[1:3] for call in recorder.calls if call[0] == "steps"] == [(1, 2), (2, 5)]
    for values in map(without_speed, recorder.values("steps")):
        assert values == {**dict.fromkeys(LOSSES, pytest.approx(1)), **RATES}
    _, recorder, _ = fit(1, log_every=1, bad=(2,))
    assert [set(without_speed(values)) for values in recorder.values("steps")] == [
        {*LOSSES, *RATES}, {*RATES}, {*LOSSES, *RATES}
    ]  # fmt: skip


def test_a_resumed_run_does_the_rest_only(fit):
    _, recorder, _ = fit(5, TrainState(epoch=3, step=9))
    assert recorder.of("train") == [4, 5] and recorder.of("save") == [4, 5]
    figures, recorder, _ = fit(5, TrainState(epoch=5, step=15))
    assert figures == {} and recorder.calls == []


def test_checkpoints_inside_an_epoch_are_minutes_apart(fit, monkeypatch):
    def times(minutes, seconds_per_look):
        now = [0.0]

        def monotonic():
            now[0] += seconds_per_look
            return now[0]

        monkeypatch.setattr("time.monotonic", monotonic)
        _, recorder, _ = fit(1, checkpoint_minutes=minutes)
        return [call[2] for call in recorder.calls if call[0] == "save"]

    assert times(0, 0.0) == [
        0,
        1,
        2,
        3,
        3,
        3,
        3,
        3,
    ]  # after each of three steps of training and of testing, and the end
    assert times(10, 0.0) == [0, 3]
    assert len(times(10, 500.0)) > 4


def test_a_step_that_is_not_finite_is_left_out_counted_and_named(fit):
    figures, recorder, done = fit(2, bad=(2, 5), bad_tests=(1,))
    assert all(figures["train"][key] == pytest.approx(1) for key in LOSSES)
    assert figures["train"]["skipped_steps"] == 1 and recorder.values("test")[0]["skipped_steps"] == 1
    events = [call for call in recorder.calls if call[0] == "not finite"]
    assert [event[1:3] for event in events] == [(1, 2), (1, 3), (2, 5)]
    assert set(events[0][3]["figures"]) == {*LOSSES, SAMPLES}
    assert events[0][3]["images"] == done.train.batch_names(0, 3)
    assert "epoch 1, step 2 (train): loss_G/loss, " in fit.said[0] and events[0][3]["images"][0] in fit.said[0]
    assert "nothing was updated (1 in a row)" in fit.said[0]
    assert done.progress.step == 6 and done.progress.reshuffles == 0


@pytest.mark.parametrize("scale, diverges", [(1.0, True), (1.0000001, True), (2.0, False), (1.9999999, False)])
def test_bad_steps_with_the_smallest_loss_scale_are_not_its_search(fit, scale, diverges):
    _, _, done = fit(1, max_bad_steps=3)
    figures = {LOSS_SCALE: scale, GRADIENTS[0]: float("nan"), LOSSES[0]: 1.0}  # the scale as replicas' shares sum up
    with pytest.raises(Diverged) if diverges else contextlib.nullcontext():
        for number in range(3):
            done._bad_step("train", 0, number, figures)
    assert len(fit.said) == (3 if diverges else 0)


def test_the_speed_is_that_of_all_calls_but_the_first_and_waiting_is_its_share(fit, monkeypatch):
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
    figures, _, _ = fit(2, began=work)
    for split in ("train", "test"):
        assert (figures[split]["speed/data_wait"], figures[split]["speed/ms_per_step"]) == (0.75, 4000)


def test_an_epoch_without_a_finite_step_has_no_means(fit):
    _, recorder, _ = fit(2, bad=(1, 2, 3))
    assert set(without_speed(recorder.values("train")[0])) == {
        "seconds", "skipped_steps", "epoch_seconds", *RATES
    }  # fmt: skip
    assert recorder.values("train")[0]["skipped_steps"] == 3


def test_too_many_bad_steps_in_a_row_go_back_to_the_last_checkpoint_with_another_order(fit):
    seen = []
    _, recorder, done = fit(3, bad=(4, 5, 6), max_bad_steps=3, seen=seen)  # the second epoch
    kinds = [call[:3] for call in recorder.calls if call[0] in ("rewind", "went back", "save")]
    assert kinds == [
        ("save", 0, 0),
        ("save", 1, 3),
        ("rewind", 1, 3),
        ("went back", 2, 3),
        ("save", 2, 6),
        ("save", 3, 9),
    ]
    assert "went back" in [call[0] for call in recorder.calls] and "goes back to checkpoint of step 3" in fit.said[-1]
    assert done.progress.reshuffles == 1 and done.progress.step == 9
    first_try, second_try = seen[7:14], seen[14:21]
    assert first_try != second_try
    assert recorder.of("train") == [1, 2, 3]


def test_no_checkpoint_is_saved_between_a_bad_step_and_the_next_good_one(fit):
    def saves():
        return [call[1:] for call in fit.recorder.calls if call[0] == "save"]

    fit(2, bad=(2,), checkpoint_minutes=0)
    assert saves()[:3] == [(0, 0), (0, 1), (0, 3)]
    fit(2, bad=(3,))  # the last one of an epoch: testing shows that the weights are sound
    assert saves() == [(0, 0), (1, 3), (2, 6)]
    fit(2, bad_tests=(3, 6))  # single pictures of the test set
    assert saves() == [(0, 0), (1, 3), (2, 6)]
    fit(2, bad_tests=(1, 2, 3))  # the weights are broken, or so it seems until the next step
    assert saves() == [(0, 0), (1, 4), (2, 6)]
    with pytest.raises(TrainingError, match="the last steps were not finite, so the end of training is not saved"):
        fit(1, bad_tests=(1, 2, 3))
    assert saves() == [(0, 0)]


def test_a_row_of_bad_steps_may_span_epochs(fit):
    _, recorder, _ = fit(4, bad=(6, 7, 8), max_bad_steps=3)  # with good test steps in between
    assert ("went back", 3, 6) in [call[:3] for call in recorder.calls]
    _, recorder, _ = fit(4, bad_tests=(5, 6, 7), max_bad_steps=3)
    assert "went back" in [call[0] for call in recorder.calls]


def test_the_second_time_training_stops(fit):
    with pytest.raises(TrainingError, match=r"loss_G/loss, .* not finite, with .*diverged again.*lower --lr"):
        fit(2, bad=range(2, 99), max_bad_steps=2)
    assert fit.recorder.of("save") == [0]
    assert TrainingError.exit_code == 1


def test_silent_failures_are_said_once(fit):
    _, recorder, done = fit(3, value=0.005)
    assert len(fit.said) == 4 and all(text.startswith("epoch 1: ") for text in fit.said)
    assert set(done.progress.warned) == {"G does nothing", "F does nothing", "D_X has won", "D_Y has won"}
    assert recorder.of("G does nothing") == [1]
    fit(2, TrainState(epoch=1, step=3, warned=done.progress.warned), value=0.005)
    assert not fit.said


@pytest.mark.parametrize("batch", [1, 2, 4, 9])
def test_another_batch_size_goes_on_with_the_pictures_that_are_left(fit, batch):
    whole, rest = [], []
    fit(1, seen=whole)
    place = TrainState(step=1, global_batch_size=3)
    place.train.pairs_done, place.train.sums = 3, {**dict.fromkeys(LOSSES, 3.0), SAMPLES: 3.0}
    figures, _, done = fit(1, place, batch=batch, seen=rest, value=2.0)
    assert rest == whole[3:]
    assert figures["train"]["loss_G/loss"] == pytest.approx((3 * 1 + 4 * 2) / 7)
    assert done.progress.step == 1 + -(-4 // batch)


def test_a_device_without_enough_memory_is_one_clear_line(fit):
    def step(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor")

    fit(1)
    fit.loop.progress, fit.loop.train_step = TrainState(), step
    with pytest.raises(TrainingError, match="not enough memory for a step: try a smaller --batch_size"):
        fit.loop.fit()


def test_verbosity(fit, capsys):
    fit(1, verbose=0)
    captured = capsys.readouterr()
    assert captured.out == captured.err == ""
    fit(1, verbose=1)
    captured = capsys.readouterr()
    lines = captured.out.splitlines()
    assert lines[0] == "Epoch 001/001"
    assert lines[1] == "MAE(X, F(G(X))): 1.0000  MAE(X, F(X)): 1.0000"
    assert lines[2] == "MAE(Y, G(F(Y))): 1.0000  MAE(Y, G(Y)): 1.0000"
    assert lines[3].startswith("Elapsed: ") and len(lines) == 4
    for bar in ("Train: 100%", "Test: 100%", "3/3", "images/s"):
        assert bar in captured.err
    fit(1, verbose=2)
    assert "train: loss_G/loss 1.0000  loss_G/cycle 1.0000" in capsys.readouterr().out


def test_the_samples_are_the_first_test_pictures(make_images):
    x, y = make_images(7, 16, seed=1), make_images(6, 16, seed=2)
    seen = []
    gan = types.SimpleNamespace(cycle=lambda x, y: seen.extend([x, y]) or [tf.constant(x)] * 4)
    summary = types.SimpleNamespace(write_cycles=lambda epoch, x, y, names: (epoch, len(x), len(y), names))
    names = [f"x[{i}]" for i in range(5)], [f"y[{i}]" for i in range(5)]
    assert plot(gan, UnpairedDataset(x, y, 3, (16, 16)), summary, 9) == (9, 3, 3, [*names])
    np.testing.assert_allclose(seen[0], x[:5] / 127.5 - 1, atol=1e-6)
    np.testing.assert_allclose(seen[1], y[:5] / 127.5 - 1, atol=1e-6)


def test_a_loss_that_is_switched_on_or_off_inside_an_epoch_has_no_mean_of_it(fit):
    place = TrainState(step=1, global_batch_size=3)
    place.train.pairs_done = 3
    place.train.sums = {**dict.fromkeys(LOSSES[1:], 3.0), "loss_X/penalty": 3.0, SAMPLES: 3.0}
    _, recorder, _ = fit(2, place)
    first, second = recorder.values("train")
    assert not {LOSSES[0], "loss_X/penalty"} & set(first) and first[LOSSES[1]] == pytest.approx(1)
    assert {*LOSSES} <= set(second) and second[LOSSES[0]] == pytest.approx(1)
    assert fit.summed["train"] == {frozenset((*LOSSES, SAMPLES))}  # the same in each call, so that none is traced again


def test_going_back_to_where_other_losses_were_summed_is_going_on_with_those_of_now(fit, monkeypatch):
    place = TrainState(step=1, global_batch_size=3)
    place.train.pairs_done = 3
    place.train.sums = {**dict.fromkeys(LOSSES, 3.0), "loss_X/penalty": 3.0, SAMPLES: 3.0}
    saved = place.to_dict()
    monkeypatch.setattr(Recorder, "restore", lambda self: (TrainState.from_dict(saved), "the checkpoint"))
    _, recorder, done = fit(2, place, bad=(1, 2), max_bad_steps=2)
    assert done.progress.reshuffles == 1
    for values in recorder.values("train"):
        assert "loss_X/penalty" not in values and values[LOSSES[0]] == pytest.approx(1)
