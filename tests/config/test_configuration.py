"""Values of settings: which are refused, which defaults follow from others, and what a resumed run may change."""

import os

import pytest

from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.config import COMPONENTS, all_settings, components
from cyclegan.config.fields import FIXED, FREE, WARN
from cyclegan.config.sections import CALL_SECONDS, MAX_STEPS_PER_CALL, choose_steps_per_call
from cyclegan.config.serialization import changed_settings, with_measured_ranges
from cyclegan.errors import UserError


def values(flags, *names):
    """Return the values of some settings of a command line."""
    settings = parse_args(flags.split()).settings()
    return tuple(settings[name] for name in names)


@pytest.mark.parametrize(
    "flags, text",
    [
        ("--image_size 8", "--image_size 8: expected at least 16 pixels"),
        ("--image_size 64 --load_size 60", "--load_size 60: expected at least 64 pixels (--image_size)"),
        ("--value_range_x 5", "--value_range_x 5: expected LO:HI, two numbers with LO < HI, or auto"),
        ("--epoch_size 0", "--epoch_size 0: expected min, max or a whole number of at least 1"),
        ("--generator resnet", "--generator resnet: expected one of auto, resnet_*blocks, unet_256, unet_128"),
        ("--generator resnet_xblocks", "--generator resnet_xblocks: expected a number of residual blocks"),
        ("--generator resnet_6blocks --residual_blocks 9", "--residual_blocks 9: expected 6, as --generator resnet_6"),
        ("--diffaugment color,zoom", "--diffaugment color,zoom: expected any of color,translation,cutout"),
        ("--batch_size 0", "--batch_size 0: expected at least 1 image pair per replica"),
        ("--lr 1e400", "--lr inf: expected a finite number, above 0"),
        ("--profile 5:3", "--profile 5:3: expected START:END, two numbers of steps with START < END"),
        (
            "--evaluate_features=",
            "--evaluate_features '': expected a text that is not empty (is a shell variable not set?)",
        ),
        ("--patience 3", "--patience 3: expected --evaluate_every, too"),
        ("--paired_share 0.3", "--paired_share 0.3: expected --paired_names, too"),
        # Several sections
        ("--lambda_paired 10", "--lambda_paired 10.0: expected --paired_names, too"),
        ("--image_size 258", "resnet_9blocks halves images of 258 pixels 2 times; expected a multiple of 4: use"),
        (
            "--generator unet_256 --dataset stripes",
            "unet_256 halves images of 64 pixels 8 times; expected a multiple of 256: use --image_size 256",
        ),
        ("--residual_blocks -1", "--residual_blocks -1: expected at least 0"),
        ("--lambda_cycle 5 --objective cut", "--lambda_cycle belongs to --objective cyclegan"),
        ("--lambda-gp 5", "--lambda_gp belongs to --adversarial wgan-gp"),
        ("--objective fastcut --lambda_paired 1", "--lambda_paired belongs to --objective cyclegan or cut"),
        (
            "--image_size 16 --discriminator_layers 5",
            "--discriminator_layers 5 halves images 5 times, and images of 16 pixels are too small for it: expected at"
            " most 3 layers, or images of at least 33 pixels",
        ),
        ("--steps_per_call 3", "--steps_per_call 3: expected a divisor of --log_every, which is 100"),
        ("--norm batch --r1 1", "--norm batch: --r1 1.0 needs samples that do not influence each other"),
        ("--norm batch --adversarial wgan-gp", "--norm batch: --adversarial wgan-gp needs samples"),
        ("--norm batch --xla on", "--norm batch: --xla on cannot sum its statistics over the replicas"),
        ("--antialias --generator unet_256", "--antialias: expected a ResNet, not --generator unet_256"),
        ("--recompute --norm batch", "--recompute: --norm batch would count its statistics twice"),
        ("--recompute --dropout 0.5", "--recompute: --dropout 0.5 would drop other values the second time"),
        ("--channels_x 1 --lambda_identity 1", "--lambda_identity 1.0: compares images of both domains; expected"),
        ("--objective cut --channels_x 1", "expected --channels_x 1 equal to --channels_y 3"),
        (
            "--objective cut --generator unet_256",
            "compares features of a ResNet; expected --generator resnet_9blocks or the like, not unet_256",
        ),
    ],
)
def test_impossible_values_are_refused(flags, text):
    with pytest.raises(UserError) as error:
        parse_args(flags.split())
    assert text in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    "path, problem",
    [
        ("gs://bucket/run", "a URL; expected a path on this machine"),
        ("ram://run", "a URL"),
        ("https:/example.org/run", "a URL"),  # as pathlib writes it
        ("x" * 300, "no path; expected names of at most 255 bytes"),
        ("~nobody-of-this-name/run", "there is no such user"),
        ("x" * 5000, "x...: no path; expected at most 4000 bytes"),
        ("d/" * 1000, "no path; expected at most 4000 bytes, 400 nested folders"),
        ("a\0b", "no path"),
        ("n\udcff", "expected a name in UTF-8"),
        ("/", "--output_dir /: expected a folder below it"),
        ("//.", "expected a folder below it"),
        ("", "expected a text that is not empty"),
    ],
)
def test_impossible_folders_of_a_run_are_refused(path, problem):
    for make in (lambda: Config.from_settings(output_dir=path), lambda: parse_args([f"--output_dir={path}"])):
        with pytest.raises(UserError) as error:
            make()
        assert problem in str(error.value) and len(str(error.value)) < 300


def test_the_folder_of_tensorflow_datasets_is_on_this_machine(monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", "gs://bucket/data")
    with pytest.raises(UserError, match="TFDS_DATA_DIR gs://bucket/data: a URL"):
        Config.from_settings().data.tfds_folder  # noqa: B018
    assert str(Config.from_settings(data_dir="~/data").data.tfds_folder) == os.path.expanduser("~/data")


@pytest.mark.parametrize("uri", ["http://me:word@host:5000", "http:me:word@host", "mysql://host/db?password=word"])
def test_a_tracker_uri_with_a_secret_is_refused_and_not_repeated(uri):
    with pytest.raises(UserError, match="--mlflow: the URI has a user, a password or a token") as error:
        parse_args(["--mlflow", uri])
    assert "word@" not in str(error.value) and "=word" not in str(error.value)
    for harmless in ("http://host:5000/path", "file:/data/a@b", "sqlite:////data/a@b.db", "mlruns", "databricks://me"):
        assert parse_args(["--mlflow", harmless]).run.mlflow == harmless


def test_defaults_are_the_papers():
    assert values("", "dataset", "output_dir") == ("cycle_gan/horse2zebra", "runs/horse2zebra")
    assert values("", "epochs", "batch_size", "image_size", "load_size", "epoch_size") == (200, 1, 256, 286, "min")
    assert values("", "filters", "generator", "residual_blocks") == (64, "resnet_9blocks", 9)
    assert values("", "lr", "beta_1", "beta_2", "decay_from", "pool_size") == (2e-4, 0.5, 0.999, 100, 50)
    assert values("", "lambda_cycle", "lambda_identity", "adversarial") == (10, 5, "lsgan")


@pytest.mark.parametrize(
    "flags, expected",
    [
        ("--image_size 128", {"image_width": 128, "load_size": 143, "generator": "resnet_6blocks"}),
        ("--image_width 512 --preprocess scale_width", {"load_size": 572}),
        ("--variant paper --norm_affine yes --epsilon 0.1", {"norm_affine": "yes", "epsilon": 0.1}),
        ("--channels_x 1", {"lambda_identity": 0.0}),
        ("--dataset stripes", {"image_size": 64, "load_size": 64, "filters": 16, "residual_blocks": 3, "lr": 1e-3}),
        ("--dataset scenes --image_size 128 --lr 0.5 --filters 7", {"load_size": 128, "lr": 0.5, "filters": 7}),
    ],
)
def test_defaults_follow_from_other_settings(flags, expected):
    assert values(flags, *expected) == tuple(expected.values())


def test_a_component_has_only_its_settings():
    assert not hasattr(Config.from_settings(objective="cut").objective, "lambda_cycle")
    assert "residual_blocks" not in Config.from_settings(generator="unet_256").settings()
    with pytest.raises(UserError, match="^--lambda_cycle belongs to --objective cyclegan$"):
        Config.from_settings(objective="cut", lambda_cycle=5.0)
    constant = Config.from_settings(decay_from=3).replace(lr_schedule="constant")
    assert "decay_from" not in constant.settings()
    with pytest.raises(TypeError, match="cutmix: no such setting"):
        Config.from_settings(cutmix=1)


@pytest.mark.parametrize("setting", COMPONENTS)
def test_every_component_can_be_chosen(setting):
    for pattern, component in components(setting).items():
        size = 256 if "unet" in pattern else 64
        config = Config.from_settings(image_size=size, **{setting: pattern.replace("*", "2")})
        assert isinstance(getattr(config, all_settings()[setting].section), component)


def test_presets_are_the_published_settings():
    names = ("variant", "generator", "pool_size", "epochs", "decay_from", "load_size", "epoch_size")
    assert values("--preset paper", *names) == ("paper", "resnet_9blocks", 50, 200, 100, 286, "max")
    names = ("variant", "pool_size", "lr_schedule", "beta_2", "load_size", "epoch_size")
    assert values("--preset tutorial", *names) == ("keras", 0, "constant", 0.9, 286, "min")
    names = ("filters", "generator", "image_size", "lr")
    assert values("--preset paper --dataset stripes", *names) == (64, "resnet_9blocks", 256, 2e-4)
    assert values("--preset paper --objective cut", "pool_size") == (0,)
    names = ("objective", "adversarial", "init", "antialias", "epochs", "decay_from", "pool_size", "crop_until_decay")
    assert values("--preset cut", *names) == ("cut", "lsgan", "xavier", True, 400, 200, 0, True)
    assert values("--preset fastcut", *names) == ("fastcut", "lsgan", "xavier", True, 200, 150, 0, True)
    names = ("variant", "generator", "filters", "lr", "beta_1", "beta_2", "epoch_size", "image_size", "load_size")
    assert values("--preset cut", *names) == values("--preset paper", *names)


def test_value_ranges_may_begin_below_0():
    data = parse_args(["--value_range_x", "-1000:2e3", "--value_range_y", "-.5:.5"]).data
    assert data.value_range("X") == (-1000, 2000) and data.value_range("Y") == (-0.5, 0.5)
    assert Config.from_settings().data.value_range("X") is None
    with pytest.raises(UserError, match="--value_range_x auto: expected LO:HI, because no training has measured"):
        Config.from_settings(value_range_x="auto").data.value_range("X")


def test_shapes_of_images_that_are_not_square():
    config = Config.from_settings(image_size=128, image_width=256)
    assert config.data.image_shape == (128, 256) and config.data.load_shape == (143, 286)


def test_changed_settings_lists_one_kind():
    old, new = Config.from_settings(filters=8, lr=1.0, epochs=2), Config.from_settings(filters=9, lr=2.0, epochs=2)
    new = new.replace(epochs=3, precision="bfloat16", recompute=True)
    assert changed_settings(old, new, FIXED) == ["filters 8 -> 9"]
    small = Config.from_settings(filters=8, image_size=64)  # load_size and image_width follow
    assert changed_settings(old, small, FIXED) == [
        "image_size 256 -> 64",
        "generator 'resnet_9blocks' -> 'resnet_6blocks'",
    ]
    warned = ["lr 1.0 -> 2.0", "precision 'auto' -> 'bfloat16'"]
    assert changed_settings(old, new, WARN) == warned
    assert changed_settings(old, new, FREE) == ["epochs 2 -> 3", "recompute False -> True"]
    constant = old.replace(lr_schedule="constant")
    assert changed_settings(old, constant, WARN) == ["lr_schedule 'linear' -> 'constant'"]
    drawn = old.replace(dataset="stripes", load_size=256)  # which follows from it
    assert changed_settings(old, drawn, FIXED) == ["dataset 'cycle_gan/horse2zebra' -> 'stripes'"]


def test_a_resumed_run_keeps_the_ranges_that_it_measured():
    saved = Config.from_settings(value_range_x="100:200", value_range_y="auto")
    resumed = with_measured_ranges(saved, Config.from_settings(value_range_x="auto", value_range_y="auto"))
    assert (resumed.data.value_range_x, resumed.data.value_range_y) == ("100:200", "auto")
    given = Config.from_settings(value_range_x="0:300")
    assert with_measured_ranges(saved, given) == given


@pytest.mark.parametrize(
    "seconds, log_every, steps",
    [(0.01, 100, 10), (0.011, 100, 5), (0.021, 100, 4), (0.06, 100, 1), (30.0, 100, 1), (1e-9, 7, 7), (1e-9, 13, 1)],
)
def test_short_steps_share_a_call(seconds, log_every, steps):
    assert choose_steps_per_call(seconds, log_every) == steps <= MAX_STEPS_PER_CALL
    assert steps == 1 or steps * seconds <= CALL_SECONDS
