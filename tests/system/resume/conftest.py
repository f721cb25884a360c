import pytest

from scripts.soak.comparison import log_lines
from tests.system.resume.world import World, kept, position, score


@pytest.fixture(scope="session")
def worlds(strategies, make_images):
    made = {}

    def world(replicas):
        if replicas not in made:
            made[replicas] = World(strategies[replicas], make_images)
        return made[replicas]

    return world


@pytest.fixture(scope="session")
def world(worlds):
    return worlds(1)


@pytest.fixture(scope="session")
def undisturbed(world, tmp_path_factory):
    """Return the variables, the training state and the log of a run without interruption."""
    folder = tmp_path_factory.mktemp("undisturbed")
    trainer = world.finish(folder)
    return world.values(), position(trainer), log_lines(folder)


@pytest.fixture(scope="session")
def scored(world, tmp_path_factory):
    """Return the same of a run that is scored, and its best checkpoints."""
    folder = tmp_path_factory.mktemp("scored")
    trainer = world.finish(folder, **score(world))
    return (world.values(), position(trainer), log_lines(folder)), kept(folder)
