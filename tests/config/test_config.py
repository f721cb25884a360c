import pytest

from cyclegan.config.command_line import parse_args
from tests.config.helpers import flat, refusal_of


def test_defaults_are_the_papers():
    config = flat(parse_args([]))
    assert config.dataset == "cycle_gan/horse2zebra" and config.output_dir == "runs/horse2zebra"
    assert (config.epochs, config.batch_size, config.image_size, config.load_size) == (200, 1, 256, 286)
    assert (config.filters, config.residual_blocks) == (64, 9)
    assert (config.lr, config.beta_1, config.beta_2) == (2e-4, 0.5, 0.999)
    assert (config.lambda_cycle, config.lambda_identity, config.adversarial) == (10, 5, "lsgan")
    assert (config.plot_every, config.checkpoint_every, config.keep) == (10, 1, 3)


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--image_size 258", "--image_size 258: expected a multiple of 4"),
        ("--steps_per_call 3", "--steps_per_call 3: expected a divisor of --log_every, which is 100"),
        ("--steps_per_call 200", "--steps_per_call 200: expected a divisor of --log_every, which is 100"),
        ("--steps_per_call 2 --log_every 7", "--steps_per_call 2: expected a divisor of --log_every, which is 7"),
        (
            "--generator unet_128 --image_size 64",
            "--image_size 64: expected a multiple of 128 (--generator unet_128 halves it 7 times)",
        ),
        (
            "--image_width 130",
            "--image_width 130: expected a multiple of 4 (--generator resnet_9blocks halves it 2 times)",
        ),
        ("--norm batch --r1 1", "--norm batch: --r1 1.0 needs samples that do not influence each other"),
        ("--norm batch --adversarial wgan-gp", "--norm batch: --adversarial wgan-gp needs samples"),
        ("--recompute --norm batch", "--recompute: --norm batch would count its statistics twice"),
        ("--recompute --dropout 0.5", "--recompute: --dropout 0.5 would drop other values the second time"),
        ("--norm batch --xla on", "--norm batch: --xla on cannot sum its statistics over the replicas"),
    ],
)
def test_impossible_values_are_refused(flags, text):
    assert text in refusal_of(flags)


def test_smallest_values_are_accepted():
    config = flat(
        parse_args(["--checkpoint_minutes=0", "--log_every=1", "--max_bad_steps=1", "--keep=1", "--cache_gb=0"])
    )
    assert (config.checkpoint_minutes, config.log_every, config.max_bad_steps, config.keep) == (0, 1, 1, 1)
    assert config.cache_gb == 0
