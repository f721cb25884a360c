"""Each flag that the command line accepts has an effect, in each of many contexts; otherwise it is refused.

`test_options` tries each value of each option alone; here the flags meet datasets, networks and losses that may ignore them.
`test_program_flags` has the flags that change how a step is computed, and where training ends.
"""

import dataclasses
import functools
import hashlib
import itertools
import random

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from cyclegan.config.command_line import parse_args
from cyclegan.config.config import SECTION_OF, SECTIONS
from cyclegan.config.flags_without_effect import find_unused
from cyclegan.data import drawn_builder, sources, tfds_source
from cyclegan.data.unpaired import UnpairedDataset
from cyclegan.errors import UserError
from cyclegan.training import schedule
from cyclegan.training.gan import GAN
from cyclegan.training.step import train_step, update
from tests.training.helpers import assign_state, flat, state_values, weights
from tests.training.test_options import BASE, STEPS, TRIED, outcome
from tests.training.test_program_flags import ARITHMETIC_FLAGS, END_FLAGS, PROGRAM_FLAGS

ELSEWHERE = {  # flags without effect on the weights, with tests of their own
    *("data_dir", "output_dir", "clear_output_dir"),  # where files are
    *("cache", "cache_gb"),  # where decoded images are
    "preset",  # sets other flags
    *("verbose", "plot_every", "log_every", "no_peak"),  # what the run shows
    *("wandb", "mlflow"),  # where it shows the same
    *("evaluate_every", "evaluate_features", "profile"),  # what it measures
    *("checkpoint_every", "checkpoint_minutes", "keep"),  # when it saves
    "steps_per_call",  # how many steps the host starts at once
    *(
        field.name for field in dataclasses.fields(SECTIONS["distribution"])
    ),  # where it computes, and when workers give up
}
SMALL = {"filters": 2, "residual_blocks": 1, "discriminator_layers": 1, "pool_size": 0, "precision": "float32"}


def parsed(options):
    """Return the configuration of a command line, or `None` if it is refused; options that are `None` are left out."""
    flags = (
        (f"--{name}", [] if value is True else [str(value)]) for name, value in options.items() if value is not None
    )
    try:
        return parse_args([part for flag, value in flags for part in (flag, *value)])
    except (UserError, SystemExit):
        return None


def pairs(contexts, flags):
    """Return all pairs of a context and a flag that it does not set."""
    tried = ((context, {name: value}) for context in contexts for name, values in flags.items() for value in values)
    return [
        pytest.param(context, flag, id=f"{list(context.values())}-{flag}")
        for context, flag in tried
        if not set(flag) & set(context)
    ]


DATA_FLAGS = {
    **{"image_size": [16], "image_width": [28], "load_size": [44], "no_flip": [True], "max_dataset_size": [1]},
    "preprocess": ["crop", "scale_width", "scale_width_and_crop", "none"],
    **{"channels_x": [1], "channels_y": [1], "batch_size": [2], "epochs": [7], "seed": [1]},
    **{"cache": ["disk", "none"], "cache_gb": [0.0], "data_dir": ["elsewhere"]},
}
LATER = ("epochs", "cache", "cache_gb")  # these do not change the first steps
RANGE_FLAGS = {"value_range_x": ["10:200"], "value_range_y": ["10:200"]}  # these act alike in all contexts
PAIRS = {"dataset": "folder", "image_size": 32, "paired_names": True, "lambda_paired": 1.0}
PAIR_FLAGS = {"paired_names": [True], "paired_share": [0.5], "lambda_paired": [1.0]}
PAIR_CONTEXTS = [{key: PAIRS[key] for key in PAIRS if key != name} for name in PAIR_FLAGS]
DATA_CONTEXTS = [
    {"dataset": "folder", "image_size": 32},
    *({"dataset": "folder", "image_size": 32, "preprocess": way} for way in DATA_FLAGS["preprocess"]),
    {"dataset": "folder", "image_size": 32, "preprocess": "scale_width", "load_size": 40},
    {"dataset": "stripes", "image_size": 32},
    *({"dataset": "stripes", "image_size": 32, "preprocess": way, "load_size": 40} for way in ("crop", "none")),
    *({"dataset": "folder", "preprocess": way} for way in ("scale_width", "none")),  # --image_size is tried
    *({"dataset": "folder", "preprocess": "scale_width", side: 40} for side in ("load_size", "image_width")),
    {"dataset": "folder"},
]


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """Make a dataset with three images of 40 x 34 pixels in each split; return the folder around it.

    Scaled to the default width, the images are lower than the default --image_size, which is then the height.
    """
    home = tmp_path_factory.mktemp("home")
    for split in sources.SPLITS:
        (home / "folder" / split).mkdir(parents=True)
        for i in range(3):
            image = np.random.default_rng([i, len(split)]).integers(0, 256, (34, 40, 3)).astype(np.uint8)
            Image.fromarray(image).save(home / "folder" / split / f"{i}.png")
    return home


READ = {}  # prepared images by their folders and number


def read_once(builders, limit, bars, read=tfds_source.read):
    """Stand in for `tfds_source.read`, which takes half a second each time."""
    key = (limit, *(f"{split}: {builder.data_path}" for split, builder in builders.items()))
    if key not in READ:
        READ[key] = read(builders, limit, bars)
    return READ[key]


PROGRAMS = {}  # GANs, their initial state, and functions that train a step, by what the networks and losses depend on


def program_of(config, batch):
    """Return a GAN, its initial state and a compiled training step for images of any size."""
    key = (config.networks, config.objective, *((part.shape[-1], len(part), part.dtype) for part in batch))
    if key not in PROGRAMS:
        gan = GAN(config.optimization.batch_size, config)

        @tf.function(autograph=False)
        def step(x, y, weight, *is_pair):
            _, gradients, carry = train_step(gan, x, y, weight, 0, None, *is_pair)
            update(gan, gradients, tf.constant(True), carry)

        sizes = [(len(part), None, None, part.shape[-1]) if part.ndim == 4 else part.shape for part in batch]
        specs = [tf.TensorSpec(size, part.dtype) for size, part in zip(sizes, batch)]
        PROGRAMS[key] = gan, state_values(gan), step.get_concrete_function(*specs)
    return PROGRAMS[key]


def trained(config, dataset):
    """Train up to three steps of the first epoch from the initial weights; return the weights."""
    size = config.optimization.batch_size
    for position in range(0, min(STEPS * size, dataset.epoch_size), size):
        batch = [part[0] for part in dataset.batches(0, position, 1)]
        gan, initial, step = program_of(config, batch)
        if position == 0:
            assign_state(gan, initial)
        step(*map(tf.constant, batch))
    return flat(weights(gan))


def digest(array):
    return repr((array.shape, array.dtype, hashlib.sha256(array.tobytes()).digest()))


@functools.cache
def first_epoch(config):
    """Return the weights after three steps, and how training continues: validation, learning rates, where images are kept."""
    domains = sources.load_domains(config.data, config.networks.multiple, cache_dir=".")
    sets = ((domains.train_x, domains.train_y, config.optimization.seed), (domains.test_x, domains.test_y, None))
    train, test = (
        UnpairedDataset(
            *(x.images, y.images, config.optimization.batch_size, domains.size, seed), flip=not config.data.no_flip
        )
        for x, y, seed in sets
    )
    if config.uses_pairs:
        train.set_pairs(domains.pairs, config.data.paired_share)
    rates = [schedule.learning_rates(config.optimization, epoch) for epoch in range(config.optimization.epochs)]
    sizes = domains.size, train.epoch_size, test.epoch_size
    return digest(trained(config, train)), [*map(digest, test.batches(0, 0, 1)), sizes, rates, *domains.notes]


@pytest.mark.parametrize(
    "contexts, name, value",
    [
        pytest.param(contexts, name, value, id=f"{name} {value}")
        for contexts, flags in (
            (DATA_CONTEXTS, DATA_FLAGS),
            (DATA_CONTEXTS[:2], RANGE_FLAGS),
            ([*PAIR_CONTEXTS, *DATA_CONTEXTS[:2]], PAIR_FLAGS),
        )
        for name, values in flags.items()
        for value in values
    ],
)
def test_flags_of_the_images_change_the_training_or_are_refused(home, monkeypatch, contexts, name, value):
    """Compare trainings in all contexts that accept the flag; settings that would follow from it keep their values."""
    monkeypatch.setattr(drawn_builder, "SPLIT_SIZES", dict.fromkeys(sources.SPLITS, 3))
    monkeypatch.setattr(tfds_source, "read", read_once)
    monkeypatch.chdir(home)
    compared = 0
    for context in (context for context in contexts if name not in context):
        base = {**SMALL, "data_dir": str(home / "tfds") if context["dataset"] == "stripes" else None, **context}
        plain, changed = parsed(base), parsed({**base, name: value})
        plain = plain or parsed({key: base[key] for key in base if key not in PAIR_FLAGS})  # two need each other
        if changed and name == "data_dir":
            first_epoch(changed)
            compared += (home / value).is_dir()  # the dataset is prepared there
        elif changed:
            before, after, ignored = (
                plain.settings(),
                changed.settings(),
                {name, *find_unused(plain), *find_unused(changed)},
            )
            followed = {key: before[key] for key in before.keys() - ignored if before[key] != after[key]}
            changed = parsed({**base, name: value, **followed})
            if not changed:  # the flag acts only by settings that follow from it
                continue
            try:
                found = first_epoch(changed)
            except UserError:  # these images do not fit
                continue
            assert found[name in LATER] != first_epoch(plain)[name in LATER], context
            compared += 1
    assert compared


NETWORK_FLAGS = {
    **{"filters": [3], "generator": ["resnet_2blocks", "unet_128"], "residual_blocks": [2], "dropout": [0.5]},
    **{"upsample": ["resize"], "init": ["xavier"], "variant": ["paper"], "channels_x": [1]},
    **{"norm": ["batch", "none"], "norm_affine": ["yes", "no"]},
    **{"discriminator": ["pixel"], "discriminator_layers": [2], "discriminator_norm": ["spectral"]},
}
NETWORK_CONTEXTS = [
    {},
    {"residual_blocks": None, "discriminator_layers": None, "image_size": 128},
    {"norm": "batch", "residual_blocks": 0},
    {"norm": "none", "discriminator": "pixel", "discriminator_layers": None},
    {"variant": "paper", "channels_y": 1},
    {"generator": "unet_128", "residual_blocks": None, "image_size": 128},
]


@functools.lru_cache(maxsize=1)  # the tests of a context come one after the other
def outcome_of(context):
    """Return the outcome of three steps with the options of a context."""
    return outcome(dict(context))


def makes_a_difference(context, flag):
    """Return whether three steps with a flag end in other weights than without it."""
    got, plain = outcome({**context, **flag}), outcome_of(tuple(context.items()))
    return got.shape != plain.shape or np.abs(got - plain).max() > 1e-6


@pytest.mark.sampled
@pytest.mark.parametrize("context, flag", pairs(NETWORK_CONTEXTS, NETWORK_FLAGS))
def test_flags_of_the_networks_change_the_training_or_are_refused(context, flag):
    base = {**SMALL, "image_size": 16, "norm": "instance", **context}
    if flag == {"norm_affine": "no" if "variant" in context else "yes"}:
        return  # the default
    assert not parsed({**base, **flag}) or makes_a_difference(base, flag)


STEP_FLAGS = {
    **{"lr": [0.02], "lr_discriminator": [0.02], "lr_schedule": ["cosine"], "decay_from": [1], "ema": [0.999]},
    **{"beta_1": [0.9], "beta_2": [0.9], "epsilon": [0.1], "clip_norm": [1e-3], "weight_decay": [0.1]},
    **{
        "lambda_cycle": [1.0],
        "lambda_ssim": [1.0],
        "lambda_identity": [1.0],
        "lambda_gp": [1.0],
        "r1": [1.0],
        "label_smoothing": [0.1],
    },
    **{"adversarial": ["bce"], "pool_size": [0], "diffaugment": ["color"], "objective": ["cut"]},
    **{"discriminator_steps": [3], "generator_steps": [3]},
}
STEP_CONTEXTS = [
    {"adversarial": "wgan-gp", "channels_x": 1, "lr_schedule": "constant"},
    {"adversarial": "hinge", "norm": "batch", "variant": "paper"},
    {"objective": "cut", "adversarial": "bce"},
]


@pytest.mark.sampled
@pytest.mark.parametrize(
    "context, flag",
    [
        *pairs(STEP_CONTEXTS, STEP_FLAGS),
        *pairs([{"adversarial": "bce"}], {"label_smoothing": [0.1]}),
        *pairs([{}], {"adversarial": ["bce"]}),
    ],
)
def test_flags_of_a_step_change_the_training_or_are_refused(context, flag):
    context = {"image_size": 16, "discriminator_layers": 1, **context}
    assert not parsed({**BASE, **context, **flag}) or makes_a_difference(context, flag)


MIXED_BASE = {**BASE, **SMALL, "image_size": 16, "norm": "instance", "pool_size": 2}
ALTERNATIVES = [  # without large networks, and without an epsilon that makes all changes small
    options
    for options in TRIED
    if len(options) == 1 and not {"generator", "precision", "epsilon"} & set(options)
    if options.items() - MIXED_BASE.items()
]


def mixtures(count):
    """Return random pairs of alternatives; all 1,100 pairs would take half an hour."""
    pairs = [pair for pair in itertools.combinations(ALTERNATIVES, 2) if set(pair[0]) != set(pair[1])]
    random.Random(0).shuffle(pairs)
    accepted = (pair for pair in pairs if parsed({**MIXED_BASE, **pair[0], **pair[1]}))
    return itertools.islice(accepted, count)


@pytest.mark.slow
@pytest.mark.parametrize("one, other", mixtures(16), ids=str)
def test_each_of_two_random_flags_changes_the_training(one, other):
    both = outcome({**MIXED_BASE, **one, **other})
    for context in (one, other):
        alone = outcome({**MIXED_BASE, **context})
        assert both.shape != alone.shape or np.abs(both - alone).max() > 1e-6


@pytest.mark.parametrize(
    "base, contexts, flags",
    [
        (SMALL, DATA_CONTEXTS, {**DATA_FLAGS, **RANGE_FLAGS}),
        (SMALL, PAIR_CONTEXTS, PAIR_FLAGS),
        ({**SMALL, "image_size": 16}, NETWORK_CONTEXTS, NETWORK_FLAGS),
        (
            {**BASE, "image_size": 16, "discriminator_layers": 1},
            [*STEP_CONTEXTS, {"adversarial": "bce"}, {}],
            STEP_FLAGS,
        ),
    ],
    ids=["data", "pairs", "networks", "step"],
)
def test_every_flag_is_accepted_somewhere(base, contexts, flags):
    for name, values in flags.items():
        for value in values:
            tried = [{**base, **context, name: value} for context in contexts if name not in context]
            assert any(map(parsed, tried)), f"--{name} {value}"


def test_every_flag_is_tried():
    tried = {*DATA_FLAGS, *RANGE_FLAGS, *PAIR_FLAGS, *NETWORK_FLAGS, *STEP_FLAGS, *ELSEWHERE}
    tried |= {*PROGRAM_FLAGS, *ARITHMETIC_FLAGS, *END_FLAGS}
    assert {*SECTION_OF} - tried == {"dataset"}
