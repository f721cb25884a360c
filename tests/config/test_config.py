import types

import pytest

from cyclegan.config.command_line import parse_args
from cyclegan.errors import UserError


def flat(config):
    """All settings of a configuration as attributes of one object."""
    return types.SimpleNamespace(**config.settings())


def test_defaults_are_the_papers():
    config = flat(parse_args([]))
    assert config.dataset == "cycle_gan/horse2zebra" and config.output_dir == "runs/horse2zebra"
    assert (config.epochs, config.batch_size, config.image_size, config.load_size) == (200, 1, 256, 286)
    assert (config.filters, config.residual_blocks) == (64, 9)
    assert (config.lr, config.beta_1, config.beta_2) == (2e-4, 0.5, 0.999)
    assert (config.lambda_cycle, config.lambda_identity, config.adversarial) == (10, 5, "lsgan")
    assert (config.plot_every, config.checkpoint_every, config.keep) == (10, 1, 3)


@pytest.mark.parametrize("verbose", ["0", "1", "2"])
def test_every_verbosity_is_accepted(verbose):
    assert flat(parse_args(["--verbose", verbose])).verbose == int(verbose)


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--batch_size 0", "--batch_size 0: expected at least 1 image pair per replica"),
        ("--epochs 0", "--epochs 0: expected at least 1"),
        ("--devices 0", "--devices 0: expected at least 1 device"),
        ("--image_size 258", "--image_size 258: expected a multiple of 4"),
        ("--image_size 8", "--image_size 8: expected at least 16 pixels"),
        ("--image_size 64 --load_size 60", "--load_size 60: expected at least 64 pixels (--image_size)"),
        ("--lr 0", "--lr 0.0: expected a finite number above 0"),
        ("--lr nan", "--lr nan: expected a finite number above 0"),
        ("--lr 1e400", "--lr inf: expected a finite number above 0"),
        ("--lambda_cycle -1", "--lambda_cycle -1.0: expected a finite number of at least 0"),
        ("--seed 4294967296", "--seed 4294967296: expected at most 4294967295"),
        ("--beta_1 1", "--beta_1 1.0: expected at least 0 and less than 1"),
        ("--seed -1", "--seed -1: expected at least 0"),
        ("--keep 0", "--keep 0: expected at least 1"),
        ("--checkpoint_minutes -0.5", "--checkpoint_minutes -0.5: expected a finite number of at least 0"),
        ("--checkpoint_minutes nan", "--checkpoint_minutes nan: expected a finite number of at least 0"),
        ("--checkpoint_minutes inf", "--checkpoint_minutes inf: expected a finite number of at least 0"),
        ("--cache_gb -1", "--cache_gb -1.0: expected a finite number of at least 0"),
        ("--cache_gb nan", "--cache_gb nan: expected a finite number of at least 0"),
        ("--cache_gb inf", "--cache_gb inf: expected a finite number of at least 0"),
        ("--log_every 0", "--log_every 0: expected at least 1"),
        ("--max_bad_steps 0", "--max_bad_steps 0: expected at least 1"),
        ("--steps_per_call 3", "--steps_per_call 3: expected a divisor of --log_every, which is 100"),
        ("--steps_per_call 200", "--steps_per_call 200: expected a divisor of --log_every, which is 100"),
        ("--steps_per_call 2 --log_every 7", "--steps_per_call 2: expected a divisor of --log_every, which is 7"),
        (
            "--generator resnet",
            "--generator resnet: expected auto, resnet_9blocks (or another number), unet_256, unet_128",
        ),
        ("--generator unet_512", "--generator unet_512: expected auto"),
        (
            "--generator resnet_6blocks --residual_blocks 9",
            "--residual_blocks 9: --generator resnet_6blocks has another number",
        ),
        ("--generator unet_256 --residual_blocks 9", "--residual_blocks 9: --generator unet_256 has none"),
        (
            "--generator unet_128 --image_size 64",
            "--image_size 64: expected a multiple of 128 (--generator unet_128 halves it 7 times)",
        ),
        (
            "--image_width 130",
            "--image_width 130: expected a multiple of 4 (--generator resnet_9blocks halves it twice)",
        ),
        ("--channels_x 0", "--channels_x 0: expected at least 1"),
        ("--max_dataset_size 0", "--max_dataset_size 0: expected at least 1"),
        ("--evaluate_every -1", "--evaluate_every -1: expected at least 0"),
        ("--evaluate_features=", "--evaluate_features '': expected random, inception or a file"),
        ("--dropout 1", "--dropout 1.0: expected at least 0 and less than 1"),
        ("--ema 1", "--ema 1.0: expected at least 0 and less than 1"),
        ("--ema -0.1", "--ema -0.1: expected at least 0 and less than 1"),
        ("--r1 -1", "--r1 -1.0: expected a finite number of at least 0"),
        ("--clip_norm nan", "--clip_norm nan: expected a finite number of at least 0"),
        ("--weight_decay inf", "--weight_decay inf: expected a finite number of at least 0"),
        ("--lr_discriminator 0", "--lr_discriminator 0.0: expected a finite number above 0"),
        ("--pool_size -1", "--pool_size -1: expected at least 0"),
        ("--discriminator_steps 0", "--discriminator_steps 0: expected at least 1"),
        ("--discriminator_layers 0", "--discriminator_layers 0: expected at least 1"),
        ("--diffaugment color,zoom", "--diffaugment color,zoom: zoom: expected any of color,translation,cutout"),
        ("--diffaugment ,", "--diffaugment ,: an empty name: expected any of color,translation,cutout"),
        ("--norm batch --r1 1", "--norm batch: --r1 1.0 needs samples that do not influence each other"),
        ("--norm batch --adversarial wgan-gp", "--norm batch: --adversarial wgan-gp needs samples"),
        ("--norm batch --xla on", "--norm batch: --xla on cannot sum its statistics over the replicas"),
        *(
            (f"--profile {text}", f"--profile {text}: expected START:END, two numbers of steps with START < END")
            for text in ("3", "3:", ":3", "5:3", "3:3", "1:2:3", "1.5:3", "a:b", "1:٣", "1:1234567890123")
        ),
    ],
)
def test_impossible_values_are_refused(flags, text):
    with pytest.raises(UserError) as error:
        parse_args(flags.split())
    assert text in str(error.value) and "\n" not in str(error.value)


def test_smallest_values_are_accepted():
    config = flat(
        parse_args(["--checkpoint_minutes=0", "--log_every=1", "--max_bad_steps=1", "--keep=1", "--cache_gb=0"])
    )
    assert (config.checkpoint_minutes, config.log_every, config.max_bad_steps, config.keep) == (0, 1, 1, 1)
    assert config.cache_gb == 0


@pytest.mark.parametrize("flag", ["--dataset", "--output_dir", "--data_dir"])
def test_empty_names_are_refused(flag):
    with pytest.raises(UserError, match=f"{flag} '': expected"):
        parse_args([flag, ""])


def test_tilde_is_expanded(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    config = flat(parse_args(["--output_dir=~/runs", "--data_dir=~/data"]))
    assert (config.output_dir, config.data_dir) == ("/home/me/runs", "/home/me/data")
