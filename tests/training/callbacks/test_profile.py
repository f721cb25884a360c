import pytest

from cyclegan.errors import UserError
from cyclegan.run.train_state import TrainState


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


def test_a_profile_of_no_step_is_refused_or_reported(fit):
    with pytest.raises(
        UserError, match="^--profile 9:12 profiles nothing: the run has 9 steps; expected fewer for START"
    ):
        fit(3, profile="9:12")
    for profile in ("1:3", "9:12"):
        fit(3, TrainState(epoch=1, step=3, global_batch_size=3), profile=profile)
        text = "profiles nothing: the remaining steps are 4 to 9, counted over the whole run"
        assert fit.warnings() == [f"--profile {profile} {text}"]
