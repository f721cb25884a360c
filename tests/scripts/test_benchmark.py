"""Benchmarks of the step: `scripts/benchmark`."""

import json

import pytest
import tensorflow as tf

from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.errors import UserError
from cyclegan.training.step import GAN
from scripts.benchmark import census, plain, steps
from scripts.benchmark.__main__ import main

TINY = ["--size", "16", "--filters", "2", "--residual_blocks", "0", "--precision", "float32", "--runs", "2"]


@pytest.mark.slow
def test_each_part_prints_a_table(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(steps, "DRAIN_SECONDS", 0.01)
    monkeypatch.setattr(steps, "FEED_SECONDS", 0.01)
    flags = [*TINY, "--steps", "--data", "--batch", "2", "--json", str(tmp_path / "rows.json")]
    content = main(flags)
    assert json.loads((tmp_path / "rows.json").read_text()) == json.loads(json.dumps(content))
    tables = capsys.readouterr().out.split("\n\n")
    assert [len(content[part]) for part in ("steps", "data")] == [2, 2]
    assert len(tables) == 2 and all(table.strip().startswith("| form | size | batch |") for table in tables)
    default, plain = (next(row for row in content["steps"] if row["form"] == form) for form in ("default", "plain"))
    assert plain["of_plain"] == plain["of_cyclegan"] == default["of_cyclegan"] == 1 and default["of_plain"] > 0
    assert default["images_per_second"] == pytest.approx(4000 / default["ms"]) and len(default["seconds"]) == 2
    assert all(0 <= row["data_wait"] <= 1 and row["pipeline_images_per_second"] > 0 for row in content["data"])
    (two,) = main([*TINY, "--scaling", "--replicas", "2", "--batch", "2"])["scaling"]
    assert two["relative"] == 1


def test_the_plain_networks_are_those_of_the_package():
    options = {"image_size": 32, "filters": 4, "residual_blocks": 2}
    networks = GAN(1, Config.from_settings(**options)).networks
    assert plain.generator(4, 2).count_params() == networks.generators["G"].count_params()
    assert plain.discriminator(4).count_params() == networks.discriminators["D_X"].count_params()


def test_a_step_that_a_device_refuses_is_a_row_with_an_error(monkeypatch):
    def refuse(*arguments):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nmore")

    monkeypatch.setattr(steps, "make_default", refuse)
    with pytest.raises(SystemExit, match="nothing could be timed"):
        main([*TINY, "--no_plain"])


def test_a_batch_that_replicas_cannot_share_is_refused():
    with pytest.raises(UserError, match="3 on 2; expected a multiple"):
        main([*TINY, "--batch", "3", "--replicas", "2"])


def test_kernels_and_bytes_are_counted():
    with tf.Graph().as_default() as graph:
        x, kernel = (tf.compat.v1.placeholder(tf.float32, shape) for shape in ([1, 8, 8, 4], [3, 3, 4, 16]))
        tf.reshape(tf.transpose(tf.nn.conv2d(tf.identity(x), kernel, 1, "SAME"), [0, 3, 1, 2]), [-1])
    images, output, permutation = 4 * 8 * 8 * 4, 4 * 8 * 8 * 16, 4 * 4  # bytes
    moved = images + 4 * 3 * 3 * 4 * 16 + output + 2 * output + permutation
    flops = 2 * 8 * 8 * 16 * 3 * 3 * 4
    expected = {"kernels": 2, "GB": moved / 1e9, "hidden_GB": 0, "conv_TFLOP": flops / 1e12, "transposes": 1}
    assert census.count(graph) == pytest.approx(expected)


@pytest.mark.sampled
@pytest.mark.parametrize("variant, most", [("keras", 2209), ("paper", 2053)])
def test_the_step_on_a_gpu_starts_no_more_kernels_than_recorded(variant, most):
    before = hardware.has_accelerator()
    (row,) = main(["--census", "--size", "256", "--variant", variant])["census"]
    assert row["kernels"] <= most and row["GB"] < 13 and row["transposes"] == 0
    assert hardware.has_accelerator() == before
