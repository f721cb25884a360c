import pytest

from cyclegan.errors import TrainingError
from cyclegan.methods.cyclegan import LOSSES
from tests.training.fakes import RATES, without_times


def test_lines_within_an_epoch_are_means_since_the_last_one(fit):
    _, recorder, _ = fit(2, log_every=2)
    assert [call[1:3] for call in recorder.calls if call[0] == "steps"] == [(1, 2), (2, 5)]
    for values in map(without_times, recorder.values_of("steps")):
        assert values == {**dict.fromkeys(LOSSES, pytest.approx(1)), **RATES}
    _, recorder, _ = fit(1, log_every=1, bad=(2,))
    assert [set(without_times(values)) for values in recorder.values_of("steps")] == [
        {*LOSSES, *RATES}, {*RATES}, {*LOSSES, *RATES}
    ]  # fmt: skip


def test_the_writer_is_closed_at_the_end(fit):
    assert fit(1)[1].is_complete
    with pytest.raises(TrainingError):
        fit(1, bad=range(99), max_bad_steps=1)
    assert not fit.recorder.is_complete
