import os

import pytest

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.presets import PRESETS
from cyclegan.errors import UserError
from tests.config.helpers import flat


def test_flags_win_over_file_over_preset(tmp_path):
    saved = Config.from_settings(filters=8, lr=0.5, epochs=7, pool_size=3, dataset="stripes", output_dir=str(tmp_path))
    serialization.save(tmp_path / "config.json", saved, {}, {})
    flags = [
        "--lr",
        "0.25",
        "--config",
        str(tmp_path / "config.json"),
        "--preset",
        "tutorial",
        "--output_dir",
        "elsewhere",
    ]
    config = flat(parse_args(flags))
    assert (config.lr, config.pool_size, config.output_dir) == (0.25, 3, "elsewhere")
    assert (config.filters, config.epochs, config.dataset, config.preset) == (8, 7, "stripes", "tutorial")


def test_config_file_gives_the_same_training(tmp_path):
    saved = Config.from_settings(
        filters=8, generator="resnet_2blocks", lr=0.5, image_size=128, clear_output_dir=True, output_dir="there"
    )
    serialization.save(tmp_path / "config.json", saved, {}, {})
    config = flat(parse_args(["--config", str(tmp_path / "config.json")]))
    differ = {name for name, value in vars(config).items() if value != getattr(flat(saved), name)}
    assert differ == {"output_dir", "clear_output_dir"}


def test_invalid_config_file_is_refused(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match="can't be read as the configuration of a run"):
        parse_args(["--config", str(tmp_path / "config.json")])


def test_unknown_preset_is_refused(capsys):
    with pytest.raises(SystemExit):
        parse_args(["--preset", "best"])
    assert "invalid choice: 'best'" in capsys.readouterr().err


@pytest.fixture
def saved(tmp_path):
    """Return a function that saves a configuration and returns the flags that load it."""

    def save(**values):
        serialization.save(tmp_path / "config.json", Config.from_settings(**values), {}, {})
        return ["--config", str(tmp_path / "config.json")]

    return save


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--lr 1e-5", {"lr": 1e-5, "lr_discriminator": 1e-5}),
        ("--epochs 400", {"epochs": 400, "decay_from": 200}),
        (
            "--image_size 128",
            {
                "image_width": 128,
                "load_size": 143,
                "generator": "resnet_9blocks",
                "residual_blocks": 9,
            },  # stays as saved
        ),
        ("--generator unet_256", {"generator": "unet_256", "residual_blocks": None}),
        ("--residual_blocks 3", {"generator": "resnet_3blocks"}),
        ("--variant paper", {"norm_affine": "no", "epsilon": 1e-8}),
        ("--dataset stripes", {"image_size": 256, "filters": 64, "residual_blocks": 9, "lr": 2e-4, "load_size": 256}),
    ],
)
def test_derived_settings_follow_the_flags(saved, flags, expected):
    for first in (saved(), ["--preset", "paper"]):
        config = flat(parse_args([*first, *flags.split(), "--output_dir", "elsewhere"]))
        for name, value in expected.items():
            if first[0] == "--config" or name not in PRESETS["paper"]:
                assert getattr(config, name) == value, name


def test_chosen_settings_stay(saved):
    chosen = {
        "lr_discriminator": 0.5,
        "decay_from": 3,
        "image_width": 64,
        "norm_affine": "no",
        "generator": "resnet_2blocks",
    }
    config = flat(parse_args([*saved(**chosen, load_size=300), "--lr", "1", "--epochs", "9", "--image_size", "128"]))
    assert {name: getattr(config, name) for name in chosen} == chosen and config.load_size == 300


@pytest.mark.parametrize("flags", [["--generator", "unet_256"], ["--residual_blocks", "4"]])
def test_generator_flags_replace_the_saved_generator(saved, flags):
    config = flat(parse_args([*saved(generator="resnet_2blocks"), *flags]))
    assert (config.generator, config.residual_blocks) in (("unet_256", None), ("resnet_4blocks", 4))


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_not_modified(saved, preset):
    before = dict(PRESETS[preset])
    parse_args([*saved(beta_1=0.25), "--preset", preset, "--beta_2", "0.5"])
    assert PRESETS[preset] == before


@pytest.mark.parametrize(
    "flags, folder",
    [
        ("--preset demo", "runs/demo"),
        ("--preset demo --dataset stripes", "runs/demo"),
        ("--preset demo --dataset /my/photos", "runs/photos"),
        ("--preset demo --dataset /my/photos --output_dir there", "there"),
    ],
)
def test_output_dir_of_a_preset_is_for_its_dataset(flags, folder):
    assert flat(parse_args(flags.split())).output_dir == folder


def test_preset_flags_in_effect():
    config = parse_args(["--preset", "tutorial", "--pool_size", "3"])
    assert "--beta_2 0.9" in config.preset_flags and "pool_size" not in config.preset_flags
    assert Config.from_settings().preset_flags == ""


def test_flags_take_dashes_and_underscores():
    assert parse_args(["--batch-size", "3", "--clear-output-dir"]) == parse_args(
        ["--batch_size", "3", "--clear_output_dir"]
    )


@pytest.mark.parametrize(
    "flags",
    [
        "--epochs ten",
        "--adversarial wgan",
        "--cache tape",
        "--verbose 3",
        "--precision double",
        "--xla 1",
        "--no_such_flag",
        "--epoch 3",
    ],
)
def test_argparse_errors_are_one_line_with_code_2(flags, capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(flags.split())
    message = capsys.readouterr().err
    assert exit.value.code == 2 and message.count("\n") == 1 and flags.split()[0] in message


def test_help_has_groups_defaults_and_units(capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    for part in (
        "data:",
        "networks:",
        "optimization:",
        "run:",
        "default: 256; stripes, scenes: 64",
        "in pixels",
        "(default: 200)",
    ):
        assert part in text
    assert "None" not in text


def test_presets_win_over_suited_defaults():
    config = flat(parse_args(["--preset", "paper", "--dataset", "stripes"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (64, "resnet_9blocks", 256, 2e-4)
    assert flat(parse_args(["--preset", "paper", "--image_size", "128"])).generator == "resnet_9blocks"
    assert flat(parse_args(["--preset", "fast", "--dataset", "stripes", "--filters", "8"])).filters == 8


def test_saved_networks_win_on_another_dataset(tmp_path):
    path = str(tmp_path / "config.json")
    serialization.save(path, Config.from_settings(dataset="stripes"), {}, {})
    config = flat(parse_args(["--config", path, "--dataset", "mine", "--preset", "fast"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (16, "resnet_3blocks", 64, 1e-3)
    assert config.output_dir == os.path.join("runs", "mine")
    serialization.save(path, Config.from_settings(dataset="mine"), {}, {})
    config = flat(parse_args(["--config", path, "--dataset", "stripes"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (64, "resnet_9blocks", 256, 2e-4)


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
                "a --preprocess other than none, or without --generator and --residual_blocks",
            )
            for generator in ("--residual_blocks 3", "--generator unet_256")
        ),
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
        ("", "--patience 3", "--evaluate_every N"),
        ("--dataset my_images", "--data_dir /data", "--dataset cycle_gan/NAME, stripes or scenes"),
        *((f"--cache {cache}", "--cache_gb 2.0", "--cache auto") for cache in ("ram", "disk", "none")),
        ("--channels_x 1", "--lambda_identity 2.0", "--objective cyclegan and --channels_x equal to --channels_y"),
        ("--channels_y 1", "--lambda_identity 5.0", "--objective cyclegan and --channels_x equal to --channels_y"),
        ("--generator unet_256", "--recompute", "a ResNet with residual blocks"),
        ("--residual_blocks 0", "--recompute", "a ResNet with residual blocks"),
        *(
            (
                switch,
                flag,
                "--lambda_paired and --paired_names together, a folder or --dataset scenes, and --objective cyclegan or cut",
            )
            for switch, flag in (
                ("--dataset scenes", "--lambda_paired 1.0"),
                ("--dataset scenes --lambda_paired 0", "--paired_names"),
                ("--dataset scenes", "--paired_share 0.5"),
                ("--paired_names", "--lambda_paired 1.0"),
                ("--dataset stripes --paired_names", "--lambda_paired 1.0"),
                ("--dataset mine --objective fastcut --paired_names", "--lambda_paired 1.0"),
            )
        ),
    ],
)
def test_flags_without_effect_are_refused(switch, flag, wanted):
    with pytest.raises(UserError) as error:
        parse_args([*switch.split(), *flag.split()])
    assert str(error.value) == f"{flag}: has no effect here; expected it with {wanted} only: drop the flag"


@pytest.mark.parametrize("switch", ["--dataset scenes", "--dataset mine", "--dataset mine --objective cut"])
def test_pairs_are_used(switch):
    config = parse_args([*switch.split(), "--lambda_paired", "2", "--paired_names", "--paired_share", "0.5"])
    assert config.uses_pairs and (config.objective.lambda_paired, config.data.paired_share) == (2, 0.5)


def test_lambda_identity_0_is_accepted_without_effect():
    config = parse_args(["--channels_x", "1", "--lambda_identity", "0"])
    assert config.objective.lambda_identity == 0


def test_flags_at_their_default_are_accepted_without_effect():
    flags = "--lambda_gp 10 --adversarial hinge --label_smoothing 0 --norm batch --norm_affine auto"
    assert parse_args(flags.split()).unused == {
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
    assert drawn.data.load_size == 80 and not drawn.unused & {"load_size"}


@pytest.mark.parametrize(
    "saved, flags",
    [
        ({"adversarial": "wgan-gp", "lambda_gp": 5.0}, "--adversarial lsgan"),
        ({"label_smoothing": 0.1}, "--adversarial hinge"),
        ({"discriminator_layers": 4}, "--discriminator pixel"),
        ({"norm_affine": "no"}, "--norm batch"),
        ({"decay_from": 3}, "--lr_schedule constant"),
        ({"load_size": 300}, "--preprocess crop"),
        ({"cache_gb": 2.0}, "--cache disk"),
        ({"lambda_paired": 1.0, "paired_names": True, "paired_share": 0.5}, "--objective fastcut"),
    ],
    ids=str,
)
def test_saved_settings_without_effect_are_dropped(tmp_path, saved, flags):
    path = str(tmp_path / "config.json")
    serialization.save(path, Config.from_settings(**saved), {}, {})
    assert parse_args(["--config", path, *flags.split()]) == parse_args(flags.split())
