import ast
import dataclasses
import json
import os
import pathlib
import tempfile
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.config import Config, serialization
from cyclegan.config.command_line import parse_args
from cyclegan.config.config import SECTION_OF, SECTIONS
from cyclegan.config.fields import FIXED, FREE, WARN, field_types
from cyclegan.config.performance import CALL_FLOPS, MAX_STEPS_PER_CALL
from cyclegan.config.resume import changed_settings
from cyclegan.errors import UserError

ROOT = pathlib.Path(__file__).resolve().parents[2]
FUZZ = settings(max_examples=150, deadline=None, derandomize=True, database=None)
JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.sampled_from([10**400, "~\0", "~\ud800"])
    | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=8,
)


def steps_per_call(config, flops, peak=0.0):
    """The steps of a call with a configuration."""
    run = config.run
    return config.performance.choose_steps_per_call(flops, run.log_every, run.checkpoint_minutes, peak)


def flat(config):
    """All settings of a configuration as attributes of one object."""
    return types.SimpleNamespace(**config.settings())


def test_defaults_are_those_of_the_paper_on_horse2zebra():
    config = flat(parse_args([]))
    assert config.dataset == "cycle_gan/horse2zebra" and config.output_dir == "runs/horse2zebra"
    assert (config.epochs, config.batch_size, config.image_size, config.load_size) == (200, 1, 256, 286)
    assert (config.filters, config.residual_blocks) == (64, 9)
    assert (config.lr, config.beta_1, config.beta_2) == (2e-4, 0.5, 0.999)
    assert (config.lambda_cycle, config.lambda_identity, config.adversarial) == (10, 5, "lsgan")
    assert (config.plot_every, config.checkpoint_every, config.keep) == (10, 1, 3)


def test_defaults_follow_the_data_set_and_the_size():
    stripes = flat(parse_args(["--dataset", "stripes"]))
    assert (stripes.image_size, stripes.load_size, stripes.output_dir) == (64, 64, "runs/stripes")
    assert flat(parse_args(["--dataset", "stripes", "--image_size", "128"])).load_size == 128
    small = flat(parse_args(["--image_size", "128"]))
    assert (small.load_size, small.residual_blocks) == (143, 6)
    assert flat(parse_args(["--dataset", "/data/my pictures/"])).output_dir == "runs/my pictures"


def test_flags_given_by_hand_win():
    assert flat(parse_args(["--dataset", "stripes", "--lr", "0.5", "--filters", "7"])).lr == 0.5


def test_flags_take_dashes_and_underscores():
    assert parse_args(["--batch-size", "3", "--clear-output-dir"]) == parse_args(
        ["--batch_size", "3", "--clear_output_dir"]
    )


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
            "--residual_blocks 9: --generator resnet_6blocks says otherwise",
        ),
        ("--generator unet_256 --residual_blocks 9", "--residual_blocks 9: --generator unet_256 has none"),
        (
            "--generator unet_128 --image_size 64",
            "--image_size 64: expected a multiple of 128 (the generators halve it 7 times)",
        ),
        ("--image_width 130", "--image_width 130: expected a multiple of 4 (the generators halve it twice)"),
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
        ("--norm batch --r1 1", "--norm batch: --r1 1.0 needs samples that have no say in each other"),
        ("--norm batch --adversarial wgan-gp", "--norm batch: --adversarial wgan-gp needs samples"),
        ("--norm batch --xla on", "--norm batch: its statistics are summed over the replicas"),
        *(
            (f"--profile {text}", f"--profile {text}: expected START:END, two numbers of steps with START < END")
            for text in ("3", "3:", ":3", "5:3", "3:3", "1:2:3", "1.5:3", "a:b", "1:٣", "1:1234567890123")
        ),
    ],
)
def test_values_that_cannot_work_are_refused(flags, text):
    with pytest.raises(UserError) as error:
        parse_args(flags.split())
    assert text in str(error.value) and "\n" not in str(error.value)


def test_the_least_values_that_can_work_are_accepted():
    config = flat(
        parse_args(["--checkpoint_minutes=0", "--log_every=1", "--max_bad_steps=1", "--keep=1", "--cache_gb=0"])
    )
    assert (config.checkpoint_minutes, config.log_every, config.max_bad_steps, config.keep) == (0, 1, 1, 1)
    assert config.cache_gb == 0


@pytest.mark.parametrize("text, steps", [("0:1", (0, 1)), ("3:20", (3, 20)), ("007:999999999999", (7, 999999999999))])
def test_the_steps_to_profile_are_two_numbers(text, steps):
    assert parse_args(["--profile", text]).performance.profile_steps == steps


def test_nothing_is_profiled_unless_asked_for():
    assert parse_args([]).performance.profile_steps is None
    with pytest.raises(UserError, match="--profile : expected START:END"):
        parse_args(["--profile", ""])


@pytest.mark.parametrize("name, values", [("precision", "auto float32 bfloat16 float16"), ("xla", "auto on off")])
def test_the_choices_of_speed(name, values):
    assert getattr(Config().performance, name) == "auto"
    for value in values.split():
        assert getattr(parse_args([f"--{name}", value]).performance, name) == value


@pytest.mark.parametrize(
    "flops, log_every, steps",
    [
        (0.4e9, 100, 10),  # 10 such steps are 4 GFLOP
        (0.41e9, 100, 5),  # 9 would do, but 5 is a divisor
        (0.8e9, 100, 5),
        (0.81e9, 100, 4),
        (3e9, 100, 1),
        (650e9, 100, 1),  # a pair of 256 pixels
        (0.0, 100, 10),
        (1.0, 7, 7),
        (1.0, 13, 1),
        (1.0, 1, 1),
        (1.0, 6, 6),
        (1.0, 36, 9),
    ],
)
def test_steps_that_take_little_are_made_several_at_a_time(flops, log_every, steps):
    assert steps_per_call(parse_args(["--log_every", str(log_every)]), flops) == steps


@given(flops=st.floats(0, 1e18), log_every=st.integers(1, 10_000), minutes=st.sampled_from([0.0, 10.0]))
@FUZZ
def test_the_steps_of_a_call_are_a_divisor_of_log_every_and_few(flops, log_every, minutes):
    steps = steps_per_call(Config.from_settings(log_every=log_every, checkpoint_minutes=minutes), flops)
    assert 1 <= steps <= MAX_STEPS_PER_CALL and log_every % steps == 0
    assert steps == 1 or (steps * flops <= CALL_FLOPS and minutes)


@pytest.mark.parametrize(
    "flops, peak, steps", [(2e9, 0, 2), (2e9, 1e11, 2), (1e11, 1e13, 2), (1e12, 1e13, 1), (1e9, 1e13, 10)]
)
def test_a_fast_device_does_more_in_a_call(flops, peak, steps):
    assert steps_per_call(Config.from_settings(log_every=100), flops, peak) == steps


def test_a_checkpoint_after_every_step_needs_calls_of_one():
    assert steps_per_call(parse_args(["--checkpoint_minutes", "0"]), 1.0) == 1


@pytest.mark.parametrize("steps", [1, 4, 25, 100])
def test_steps_per_call_given_by_hand_win(steps):
    config = parse_args(["--steps_per_call", str(steps), "--checkpoint_minutes", "0"])
    assert steps_per_call(config, 1e15) == steps


@pytest.mark.parametrize("flag", ["--dataset", "--output_dir", "--data_dir"])
def test_empty_names_are_refused(flag):
    with pytest.raises(UserError, match=f"{flag} '': expected"):
        parse_args([flag, ""])


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    config = flat(parse_args(["--output_dir=~/runs", "--data_dir=~/data"]))
    assert (config.output_dir, config.data_dir) == ("/home/me/runs", "/home/me/data")


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
def test_what_argparse_refuses_is_one_line_and_code_2(flags, capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(flags.split())
    message = capsys.readouterr().err
    assert exit.value.code == 2 and message.count("\n") == 1 and flags.split()[0] in message


def test_help_groups_the_flags_and_shows_defaults_and_units(capsys):
    with pytest.raises(SystemExit) as exit:
        parse_args(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert exit.value.code == 0
    for part in (
        "data:",
        "networks:",
        "training:",
        "output:",
        "default: 256; stripes: 64",
        "in pixels",
        "(default: 200)",
    ):
        assert part in text
    assert "None" not in text


def test_a_saved_configuration_comes_back(tmp_path):
    config = flat(parse_args(["--dataset", "stripes", "--lr", "1", "--data_dir", "é\n\"'"]))
    serialization.save(tmp_path / "config.json", config, {"keras": 2}, {"trainA": "3 pictures"})
    assert serialization.load(tmp_path / "config.json") == (config, {"keras": 2}, {"trainA": "3 pictures"})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


@pytest.mark.parametrize(
    "change, text",
    [
        (lambda saved: saved["config"]["run"].update(cutmix=50), "unknown fields 'cutmix'"),
        (
            lambda saved: saved["config"]["optimization"].update(epochs="__import__('os')"),
            "epochs is \"__import__('os')\", expected int",
        ),
        (lambda saved: saved["config"]["optimization"].update(epochs=True), "epochs is True, expected int"),
        (
            lambda saved: saved["config"]["optimization"].update(epochs=-1),
            "config.json: --epochs -1: expected at least 1",
        ),
        (lambda saved: saved.pop("config"), "can't be read as the configuration of a run"),
        (lambda saved: saved.update(config=[1]), "can't be read as the configuration of a run"),
    ],
)
def test_a_configuration_of_someone_else_is_refused(tmp_path, change, text):
    path = tmp_path / "config.json"
    serialization.save(path, Config.from_settings(), {}, {})
    saved = json.loads(path.read_text())
    change(saved)
    path.write_text(json.dumps(saved))
    with pytest.raises(UserError) as error:
        serialization.load(path)
    assert text in str(error.value)


def test_a_configuration_that_is_missing_or_no_json_is_refused(tmp_path):
    with pytest.raises(UserError, match="no such file"):
        serialization.load(tmp_path / "config.json")
    (tmp_path / "config.json").write_bytes(b"\xff{")
    with pytest.raises(UserError, match="can't be read"):
        serialization.load(tmp_path / "config.json")


def test_changes_are_told_by_what_they_mean_for_a_run():
    old, new = Config.from_settings(filters=8, lr=1.0, epochs=2), Config.from_settings(filters=9, lr=2.0, epochs=3)
    assert changed_settings(old, new, FIXED) == ["filters 8 -> 9"]
    assert changed_settings(old, new, WARN) == ["lr 1.0 -> 2.0", "lr_discriminator 1.0 -> 2.0"]
    assert changed_settings(old, new, FREE) == ["epochs 2 -> 3"]


def accepted_or_refused(content):
    """Loads a config.json of these bytes; anything but a Config or a UserError is a bug."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "config.json"
        path.write_bytes(content)
        try:
            config, stack, data = serialization.load(path)
        except UserError as error:
            return str(error)
    assert isinstance(config, Config) and type(stack) is type(data) is dict
    return config


def saved(**values):
    """The content of a config.json in which some settings have other values; unknown names become settings of the run."""
    sections = dataclasses.asdict(Config())
    for name, value in values.items():
        sections[SECTION_OF.get(name, "run")][name] = value
    return {"config": sections, "stack": {"keras": 2}, "data": {}}


def mutated(**values):
    """The outcome of loading such a file."""
    return accepted_or_refused(json.dumps(saved(**values)).encode())


@FUZZ
@given(JSON)
def test_any_json_is_a_configuration_or_refused(value):
    accepted_or_refused(json.dumps(value).encode())


@FUZZ
@given(st.binary(max_size=100))
def test_any_bytes_are_refused(content):
    assert isinstance(accepted_or_refused(content), str)


@FUZZ
@given(st.sampled_from(sorted(SECTION_OF)), JSON)
def test_a_configuration_with_any_value_in_a_field_is_one_or_refused(name, value):
    mutated(**{name: value})


@FUZZ
@given(st.sampled_from(["config", "stack", "data"]), JSON, st.booleans())
def test_a_configuration_without_or_with_another_part_is_one_or_refused(part, value, without):
    content = saved()
    content[part] = value
    if without:
        del content[part]
    accepted_or_refused(json.dumps(content).encode())


@pytest.mark.parametrize("name", sorted(SECTION_OF))
def test_each_setting_refuses_another_type_by_name(name):
    kind = field_types(SECTIONS[SECTION_OF[name]])[name]
    wrong = [[1], {}] + ([1] if kind.base in (str, bool) else ["1", True]) + ([1.5] if kind.base is int else [])
    for value in wrong:
        assert f"config.json: {name} is {value!r}, expected {kind.base.__name__}" in mutated(**{name: value})
    if not kind.optional:
        assert f"config.json: {name} is None, expected {kind.base.__name__}" in mutated(**{name: None})
    for value in (None, 10**400, -(10**400), float("nan"), float("inf")):
        mutated(**{name: value})


@pytest.mark.parametrize("section", sorted(SECTIONS))
@pytest.mark.parametrize("value", [[1], None, 3, {"no_such_setting": 1}], ids=str)
def test_a_section_that_is_none_is_refused(section, value):
    content = saved()
    content["config"][section] = value
    assert isinstance(accepted_or_refused(json.dumps(content).encode()), str)


@pytest.mark.parametrize("value", ["~\0", "~\ud800", "\0", "\ud800", "x" * 5000])
@pytest.mark.parametrize("name", ["dataset", "data_dir", "output_dir"])
def test_names_that_no_folder_can_have(name, value):
    mutated(**{name: value})


def test_a_configuration_that_leaves_fields_out_gets_the_defaults():
    content = {"config": {"data": {"dataset": "stripes"}}, "stack": {}, "data": {}}
    assert accepted_or_refused(json.dumps(content).encode()) == Config().replace(dataset="stripes")


@pytest.mark.parametrize(
    "content",
    [
        b"[" * 100_000,
        b'{"config":' * 100_000,
        b'{"stack":{},"data":{},"config":{"optimization":{"epochs":' + b"[" * 900 + b"]" * 900 + b"}}}",
        b'{"stack":{},"data":{},"config":{"optimization":{"epochs":' + b"9" * 10_000 + b"}}}",
        b'{"stack":{},"data":{},"config":{"optimization":{"lr":1e999}}}',
        b'{"stack":{},"data":{},"config":{"optimization":{"lr":NaN}}}',
        b'{"stack":{},"data":{},"config":{"\xff":1}}',
        b'{"stack":{},"data":{},"config":[["epochs",3]]}',
        b'{"stack":[[1,2],["a",3]],"data":{},"config":{}}',
        b'{"stack":{},"data":[[1,2],["a",3]],"config":{}}',
        b"\xef\xbb\xbf{}",
        b"\x80\x04\x95",  # a pickle
        b"!!python/object/apply:os.system ['true']",
        b"",
    ],
    ids=lambda content: ascii(content[:50]),
)
def test_what_is_no_configuration_is_refused(content):
    assert isinstance(accepted_or_refused(content), str)


@pytest.mark.parametrize("name", ["__class__", "__reduce__", "!!python/object", "py/object", "_check", "from_args"])
def test_names_that_mean_something_to_python_are_unknown_fields(name):
    text = mutated(**{name: "os.system"})
    assert f"unknown fields {name!r}: it was written by another version" in text


DANGEROUS_NAMES = {"eval", "exec", "__import__", "load_model"}
DANGEROUS_MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml", "jsonpickle"}
DANGEROUS_CALLS = {"np.load", "numpy.load", "yaml.load", "os.system", "os.popen"}


def dangers(source):
    """What in a program could run code that it was given as data."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names} & DANGEROUS_MODULES
        elif isinstance(node, ast.ImportFrom):
            found |= {(node.module or "").split(".")[0]} & DANGEROUS_MODULES
            found |= {alias.name for alias in node.names} & (DANGEROUS_NAMES | DANGEROUS_MODULES)
        elif isinstance(node, ast.Name):
            found |= {node.id} & DANGEROUS_NAMES
        elif isinstance(node, ast.Attribute):
            found |= {node.attr} & (DANGEROUS_NAMES | DANGEROUS_MODULES)
            found |= {ast.unparse_args(node)} & DANGEROUS_CALLS
        elif isinstance(node, ast.keyword):
            found |= {node.arg} & {"allow_pickle", "shell"}
    return found


@pytest.mark.parametrize(
    "source, found",
    [
        ("eval(text)", {"eval"}),
        ("run = exec", {"exec"}),
        ("import pickle as p", {"pickle"}),
        ("import numpy, marshal", {"marshal"}),
        ("from shelve import open", {"shelve"}),
        ("import numpy as np\nnp.load(path)", {"np.load"}),
        ("np.save(path, x, allow_pickle=True)", {"allow_pickle"}),
        ("tf.keras.models.load_model(path)", {"load_model"}),
        ("from tensorflow.keras.models import load_model as m", {"load_model"}),
        ("yaml.load(text)", {"yaml.load"}),
        ("json.loads(text)\nmodel.evaluate()\nImage.load()", set()),
    ],
)
def test_the_search_for_what_could_run_given_code_finds_it(source, found):
    assert dangers(source) == found


@pytest.mark.parametrize(
    "path",
    [*ROOT.glob("cyclegan/**/*.py"), *ROOT.glob("scripts/**/*.py"), ROOT / "train.py"],
    ids=lambda path: str(path.relative_to(ROOT)),
)
def test_no_code_is_run_that_came_as_data(path):
    allowed = {
        ("interop", "torch_file.py"): {
            "pickle"
        },  # an unpickler that allows no calls but its own; tests/interop/test_torch_file.py tries
        ("export", "exporter.py"): {"load_model"},  # of the file that it has just written, with Keras's safe mode
    }
    assert dangers(path.read_text(encoding="utf-8")) == allowed.get((path.parent.name, path.name), set())


def test_a_presets_values_win_over_those_that_suit_a_data_set():
    config = flat(parse_args(["--preset", "paper", "--dataset", "stripes"]))
    assert (config.filters, config.generator, config.image_size, config.lr) == (64, "resnet_9blocks", 256, 2e-4)
    assert flat(parse_args(["--preset", "paper", "--image_size", "128"])).generator == "resnet_9blocks"
    assert flat(parse_args(["--preset", "fast", "--dataset", "stripes", "--filters", "8"])).filters == 8


def test_a_saved_configuration_keeps_its_networks_on_other_pictures(tmp_path):
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
        ("--evaluate_every 0", "--evaluate_features inception", "--evaluate_every N"),
        *((f"--cache {cache}", "--cache_gb 2.0", "--cache auto") for cache in ("ram", "disk", "none")),
    ],
)
def test_a_flag_that_would_do_nothing_is_refused(switch, flag, wanted):
    with pytest.raises(UserError) as error:
        parse_args([*switch.split(), *flag.split()])
    assert str(error.value) == f"{flag}: has no effect here; expected it with {wanted} only: drop the flag"


def test_a_flag_at_its_default_and_a_size_that_stripes_are_drawn_at_are_not():
    flags = "--lambda_gp 10 --adversarial hinge --label_smoothing 0 --norm batch --norm_affine auto"
    assert parse_args(flags.split()).unused == {
        "lambda_gp",
        "label_smoothing",
        "norm_affine",
        "evaluate_features",
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
    ],
    ids=str,
)
def test_what_a_flag_makes_do_nothing_in_a_saved_configuration_is_left_out(tmp_path, saved, flags):
    path = str(tmp_path / "config.json")
    serialization.save(path, Config.from_settings(**saved), {}, {})
    assert parse_args(["--config", path, *flags.split()]) == parse_args(flags.split())


def test_what_did_nothing_in_a_run_may_differ_when_it_is_resumed():
    run = Config.from_settings(
        norm="batch", norm_affine="no", lr_schedule="constant", decay_from=3, cache="ram", cache_gb=2.0
    )
    again = parse_args(["--norm", "batch", "--lr_schedule", "constant", "--cache", "ram"])
    assert not [change for kind in (FIXED, WARN, FREE) for change in changed_settings(run, again, kind)]
    assert changed_settings(run, Config.from_settings(), FIXED) == [
        "norm 'batch' -> 'instance'",
        "norm_affine 'no' -> 'yes'",
    ]
