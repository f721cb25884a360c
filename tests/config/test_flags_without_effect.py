"""Test that flags without effect are refused on the command line, and dropped from a file."""

import pytest

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.flags_without_effect import find_unused
from cyclegan.errors import UserError

PATIENCE = "--evaluate_every N, and --epochs that give at least 2 evaluations more than --patience"


@pytest.mark.parametrize(
    "switch, flag, wanted",
    [
        ("--adversarial lsgan", "--lambda_gp 5.0", "--adversarial wgan-gp"),
        ("--adversarial hinge", "--label_smoothing 0.1", "--adversarial lsgan or bce"),
        ("--discriminator pixel", "--discriminator_layers 5", "--discriminator patch"),
        ("--norm batch", "--norm_affine no", "--norm instance"),
        ("--norm none", "--norm_affine yes", "--norm instance"),
        ("--lr_schedule constant", "--decay_from 3", "--lr_schedule linear or cosine"),
        ("--preset tutorial", "--decay_from 100", "--lr_schedule linear or cosine"),
        ("--preprocess crop", "--load_size 300", "--preprocess resize_and_crop, scale_width or scale_width_and_crop"),
        ("--preprocess none", "--load_size 300", "--preprocess resize_and_crop, scale_width or scale_width_and_crop"),
        *(
            (
                f"--preprocess {mode}",
                "--image_width 512",
                "a --preprocess that crops, or with --preprocess scale_width without --load_size",
            )
            for mode in ("none", "scale_width --load_size 286")
        ),
        *(
            (
                f"--preprocess none {generator}",
                "--image_size 512",
                "a --preprocess other than none; or a size below 256 and neither --generator nor --residual_blocks",
            )
            for generator in ("", "--residual_blocks 3", "--residual_blocks 9", "--generator unet_256")
        ),
        ("--decay_from 200", "--lr_schedule cosine", "--decay_from below --epochs"),
        ("--residual_blocks 0", "--dropout 0.5", "a generator with residual blocks, or a U-Net"),
        *(
            (
                "--dataset stripes",
                f"--preprocess {mode}",
                "a dataset other than stripes and scenes, or with --load_size",
            )
            for mode in ("crop", "none")
        ),
        ("--evaluate_every 0", "--evaluate_features inception", "--evaluate_every N"),
        ("", "--patience 3", PATIENCE),
        ("--evaluate_every 1 --epochs 4", "--patience 3", PATIENCE),
        ("--evaluate_every 3 --epochs 12", "--patience 3", PATIENCE),
        ("--dataset my_images", "--data_dir /data", "--dataset cycle_gan/NAME, stripes or scenes"),
        *((f"--cache {cache}", "--cache_gb 2.0", "--cache auto") for cache in ("ram", "none")),
        ("--channels_x 1", "--lambda_identity 2.0", "--objective cyclegan and --channels_x equal to --channels_y"),
        ("--channels_y 1", "--lambda_identity 5.0", "--objective cyclegan and --channels_x equal to --channels_y"),
        *(
            (
                f"--precision {precision}",
                "--tf32 off",
                "--precision auto or float32, --evaluate_every N, --discriminator_norm spectral, or --objective cut or fastcut",
            )
            for precision in ("bfloat16", "float16")
        ),
        ("--generator unet_256", "--recompute", "a ResNet with residual blocks"),
        ("--residual_blocks 0", "--recompute", "a ResNet with residual blocks"),
        *(
            (switch, flag, f"{others}, a folder or --dataset scenes, and --objective cyclegan or cut")
            for switch, flag, others in (
                ("--dataset scenes", "--lambda_paired 1.0", "--paired_names"),
                ("--dataset scenes --lambda_paired 0", "--paired_names", "--lambda_paired"),
                ("--dataset scenes", "--paired_share 0.5", "--lambda_paired and --paired_names"),
                ("--paired_names", "--lambda_paired 1.0", "--paired_names"),
                ("--dataset stripes --paired_names", "--lambda_paired 1.0", "--paired_names"),
                ("--dataset mine --objective fastcut --paired_names", "--lambda_paired 1.0", "--paired_names"),
            )
        ),
    ],
)
def test_flags_without_effect_are_refused(switch, flag, wanted):
    with pytest.raises(UserError) as error:
        parse_args([*switch.split(), *flag.split()])
    assert str(error.value) == f"{flag}: has no effect here, because it needs {wanted}; add that, or drop the flag"


@pytest.mark.parametrize("switch", ["--dataset scenes", "--dataset mine", "--dataset mine --objective cut"])
def test_pairs_are_used(switch):
    config = parse_args([*switch.split(), "--lambda_paired", "2", "--paired_names", "--paired_share", "0.5"])
    assert config.uses_pairs and (config.objective.lambda_paired, config.data.paired_share) == (2, 0.5)


@pytest.mark.parametrize(
    "switch",
    [
        "--precision float32",
        *(
            f"--precision bfloat16 {more}"
            for more in ("--evaluate_every 1", "--discriminator_norm spectral", "--objective cut")
        ),
    ],
)
def test_tf32_is_for_products_in_float32(switch):
    assert parse_args([*switch.split(), "--tf32", "off"]).performance.tf32 == "off"


def test_lambda_identity_0_is_accepted_without_effect():
    config = parse_args(["--channels_x", "1", "--lambda_identity", "0"])
    assert config.objective.lambda_identity == 0


def test_flags_that_ask_for_nothing_are_accepted_without_effect():
    flags = "--adversarial hinge --label_smoothing 0 --norm batch --norm_affine auto"
    assert find_unused(parse_args(flags.split())) == {
        "lambda_gp",
        "label_smoothing",
        "norm_affine",
        "evaluate_features",
        "patience",
        "lambda_paired",
        "paired_names",
        "paired_share",
    }
    drawn = parse_args(["--dataset", "stripes", "--preprocess", "none", "--load_size", "80"])
    assert drawn.data.load_size == 80 and not find_unused(drawn) & {"load_size"}


@pytest.mark.parametrize(
    "saved, flags",
    [
        ({"adversarial": "wgan-gp", "lambda_gp": 5.0}, "--adversarial lsgan"),
        ({"label_smoothing": 0.1}, "--adversarial hinge"),
        ({"discriminator_layers": 4}, "--discriminator pixel"),
        ({"norm_affine": "no"}, "--norm batch"),
        ({"decay_from": 3}, "--lr_schedule constant"),
        ({"load_size": 300}, "--preprocess crop"),
        ({"cache_gb": 2.0}, "--cache ram"),
        ({"lambda_paired": 1.0, "paired_names": True, "paired_share": 0.5}, "--objective fastcut"),
    ],
    ids=str,
)
def test_saved_settings_without_effect_are_dropped(tmp_path, saved, flags):
    path = str(tmp_path / "config.json")
    serialization.save(path, Config.from_settings(**saved), {}, {})
    assert parse_args(["--config", path, *flags.split()]) == parse_args(flags.split())
