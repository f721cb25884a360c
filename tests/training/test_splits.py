import pytest

from cyclegan.errors import UserError
from cyclegan.run.throughput import Throughput
from cyclegan.run.train_state import TrainState
from cyclegan.training.splits import Split
from tests.training.fakes import Steps, make_dataset


@pytest.fixture
def split(make_images):
    return Split("train", make_dataset(make_images(7, 16), 3, seed=0), Steps("train"), ("a", "b"), Throughput())


def test_unknown_sums_are_dropped(split):
    state = TrainState()
    state.train.sums = {"os.system": 1.0, "a": 2.0, "samples": 3.0}
    split.adopt(state)
    assert state.train.sums == {"a": 2.0, "samples": 3.0}


def test_a_position_beyond_the_pairs_is_refused(split):
    state = TrainState()
    state.train.pairs_done = 7
    split.adopt(state)
    state.train.pairs_done = 8
    with pytest.raises(UserError, match="has done 8 train pairs; expected at most 7: it belongs to another run"):
        split.adopt(state)
