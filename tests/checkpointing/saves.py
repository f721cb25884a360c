"""Training states, and saves of the fixture `run`."""

from cyclegan.checkpointing.train_state import PassState, TrainState


def at(epoch, pairs=0, test_pairs=0):
    """Return a training state at a position."""
    return TrainState(
        epoch=epoch, step=10 * epoch + pairs, train=PassState(pairs_done=pairs), test=PassState(pairs_done=test_pairs)
    )


def save(run, *epochs, keep=3):
    """Save a checkpoint after each of some epochs, whose weights are the number of the epoch; return the manager."""
    state, checkpoints = run(keep)
    for epoch in epochs:
        state["a"].assign([epoch, epoch])
        checkpoints.save(at(epoch))
    return checkpoints


def names(checkpoints):
    """Return the names of all files and folders beside the checkpoints."""
    return [path.name for path in checkpoints.folder.iterdir()]
