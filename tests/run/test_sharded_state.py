import numpy as np
import pytest

from cyclegan.run.sharded_state import ShardedState


class Halves(ShardedState):
    """State of two replicas, each with an array."""

    def __init__(self, left, right):
        super().__init__()
        self.parts = {"left": np.array(left), "right": np.array(right)}

    def read(self):
        return dict(self.parts)

    def write(self, arrays):
        if set(arrays) != set(self.parts):
            raise ValueError(f"other parts: {sorted(arrays)}")
        self.parts = dict(arrays)


def saved(state):
    """Return what a checkpoint of the chief holds."""
    state.before_save()
    content = state.serialize()
    state.after_save()
    return content


def test_all_parts_are_restored():
    content = saved(Halves([1, 2], [[0.5]]))
    state = Halves([0, 0], [[0.0]])
    state.deserialize(content)
    assert state.parts["left"].tolist() == [0, 0]  # until all of the checkpoint is read
    state.after_restore()
    assert {name: part.tolist() for name, part in state.parts.items()} == {"left": [1, 2], "right": [[0.5]]}


def test_a_checkpoint_without_the_state_changes_nothing():
    state = Halves([1], [2])
    state.after_restore()
    assert state.parts == {"left": [1], "right": [2]}


def test_parts_are_collected_anew_for_each_checkpoint():
    state = Halves([1], [2])
    first = saved(state)
    state.parts["left"] = np.array([3])
    for content, left in ((saved(state), [3]), (first, [1])):
        state.deserialize(content)
        state.after_restore()
        assert state.parts["left"].tolist() == left
    state.parts = {}
    state.after_restore()  # nothing of the last checkpoint is left to write
    assert state.parts == {}


def test_parts_that_do_not_fit_are_refused():
    state = Halves([1], [2])
    state.deserialize(saved(state))
    del state.parts["right"]
    with pytest.raises(ValueError, match="other parts: .*left.*right"):
        state.after_restore()
