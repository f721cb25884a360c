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
