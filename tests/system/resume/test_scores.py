"""Runs that are scored and keep their best checkpoints, with interruptions."""

import os

import numpy as np
import pytest

from tests.system.resume.world import STEPS, Killed, check_equal, kept, kill_at, score


@pytest.mark.slow
def test_scores_do_not_change_the_training(world, undisturbed, scored):
    (values, where, lines), best = scored
    for mine, theirs in zip(values, undisturbed[0]):
        np.testing.assert_array_equal(mine, theirs)
    keys = {f"score/{direction}/{name}" for direction in ("x2y", "y2x") for name in ("FID", "KID", "KID_std")}
    tests = [line for line in lines if line["split"] == "test"]
    assert [keys - set(line) for line in tests] == [set(), set()]
    assert [{k: v for k, v in line.items() if k not in keys} for line in lines] == undisturbed[2]
    assert set(best) == {"best-x2y", "best-y2x"} and where["best_kid_features"] == "random"
    for direction, value in where["best_kid"].items():
        epochs = [line["epoch"] for line in tests if line[f"score/{direction}/KID"] == value]
        assert (
            value == min(line[f"score/{direction}/KID"] for line in tests) and best[f"best-{direction}"][0] == epochs[0]
        )


@pytest.mark.slow
@pytest.mark.parametrize("step, minutes", [(5, 0), (6, 10), (10, 10)])
def test_kill_of_a_scored_run_is_bit_exact(world, scored, tmp_path, step, minutes):
    with pytest.raises(Killed):
        world.finish(tmp_path, kill_at(step), checkpoint_minutes=minutes, **score(world))
    check_equal(world, world.finish(tmp_path, **score(world)), tmp_path, scored[0])
    assert kept(tmp_path) == scored[1]


@pytest.mark.slow
@pytest.mark.parametrize("moment", (1, 2, 4, 7))
def test_kill_during_a_save_of_scores_is_bit_exact(world, scored, tmp_path, monkeypatch, moment):
    count = [0]

    def fsync(descriptor, original=os.fsync):
        count[0] += 1
        if count[0] == moment:
            raise Killed
        original(descriptor)

    def at_the_end_of_the_first_epoch(step, trainer):
        if step == STEPS:
            patch.setattr(os, "fsync", fsync)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        world.finish(tmp_path, at_the_end_of_the_first_epoch, **score(world))
    check_equal(world, world.finish(tmp_path, **score(world)), tmp_path, scored[0])
    assert kept(tmp_path) == scored[1]
