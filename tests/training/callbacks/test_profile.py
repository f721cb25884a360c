from cyclegan.checkpointing.train_state import TrainState


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


def test_a_profile_of_no_step_is_reported(fit):
    text = "profiles nothing: the remaining steps are {} to 9, counted over the whole run"
    fit(3, profile="9:12")
    assert fit.warnings() == [f"--profile 9:12 {text.format(1)}"]
    fit(3, TrainState(epoch=1, step=3, global_batch_size=3), profile="1:3")
    assert fit.warnings() == [f"--profile 1:3 {text.format(4)}"]
