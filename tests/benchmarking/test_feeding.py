import pytest
import tensorflow as tf

from cyclegan.benchmarking import feeding, forms
from cyclegan.cli import benchmark
from tests.benchmarking.flags import BRIEF, TINY


@pytest.mark.slow
def test_pipeline_and_fed_steps_are_timed(monkeypatch):
    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.05)
    result = benchmark.main([*TINY, "--precision", "float32", "--data", "--without", "ahead", "prefetch"])
    assert set(result) == {"command", "machine", "data"}
    assert [row["form"] for row in result["data"]] == ["default", "without ahead", "without prefetch"]
    (files,) = benchmark.main([*TINY, "--precision", "float32", "--data", "--cache", "none"])["data"]
    assert files["cache"] == "none"
    for row in (*result["data"], files):
        assert row["pipeline_images_per_second"] > row["step_images_per_second"] > 0 and row["traces"] == 1
        assert 0 < row["data_wait"] < 1 and row["spread"] >= 0 and row["ms"] >= row["best_ms"] > 0
    default, waiting, unread = result["data"]
    assert default["relative"] == 1 and waiting["relative"] > 0 and unread["relative"] > 0


def test_simulated_step_leaves_the_processor_free(monkeypatch):
    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.2)
    monkeypatch.setattr(forms, "default_form", None)
    flags = ["--steps_per_call", "2", "--data", "--elsewhere", "20", "--without", "ahead"]
    default, waiting = benchmark.main([*BRIEF, *flags])["data"]
    for row in (default, waiting):
        assert row["elsewhere"] == 20 and row["best_ms"] >= 20 and "traces" not in row
        assert row["step_images_per_second"] <= 2 * 2 / 0.020


@pytest.mark.sampled
@pytest.mark.parametrize("turn", [1, 2])  # the warm-up turn, the first timed turn
def test_failure_while_fed_ends_one_row_only(monkeypatch, turn):
    feed, turns = feeding.feed, []

    def without_memory(step, throughput):
        turns.append(step.setting.form)
        if turns.count("without ahead") == turn and turns[-1] == "without ahead":
            raise tf.errors.ResourceExhaustedError(None, None, "out of memory")
        return feed(step, throughput)

    monkeypatch.setattr(feeding, "DRAIN_SECONDS", 0.05)
    monkeypatch.setattr(feeding, "FEED_SECONDS", 0.2)
    monkeypatch.setattr(feeding, "feed", without_memory)
    flags = ["--data", "--elsewhere", "20", "--without", "ahead"]
    default, failed = benchmark.main([*BRIEF, *flags])["data"]
    assert default["relative"] == 1 and default["ms"] >= 20
    assert failed["error"] == "ResourceExhaustedError: out of memory" and "ms" not in failed
