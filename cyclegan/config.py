"""The command line as a frozen, checked, saved dataclass; no TensorFlow.

A field's metadata says all there is to know about its flag: the group it is listed under, its help text, and what may
happen to it when a run is resumed.
"""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import re

from cyclegan.errors import UserError

# What a run may change when it is resumed.
FREE = "free"  # changes where, how long or how loudly, not what is computed
WARN = "warn"  # changes the training from here on: allowed, and said
FIXED = "fixed"  # the checkpoint would not fit, or it would be another experiment: refused

PROFILE = re.compile(r"(\d{1,12}):(\d{1,12})", re.ASCII)
CALL_FLOPS = 4e9  # a call of several steps has at most so many operations: a tenth of a second on any CPU
CALL_SECONDS = 0.03  # or what the device could do in this time at its peak, if that is more
MOST_STEPS = 10
SEED_LIMIT = 2**32 - 1  # NumPy's
# Settings that suit a data set better than the general defaults; flags given by hand win.
SUITED = {
    "stripes": {"image_size": 64, "filters": 16, "residual_blocks": 3, "lr": 1e-3},
}
UNCROPPED = ("stripes",)  # every picture is drawn another way already: load_size is image_size


def _flag(group, help, default=None, on_resume=FIXED, **argument):
    metadata = {"group": group, "help": help, "on_resume": on_resume, "argument": argument}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything one can ask of a training run. Values are checked when an instance is made.

    `None` stands for a default that depends on other fields; `Config.from_args` and `Config()` fill it in, so that a
    finished instance holds no `None` but in `data_dir`, `cache_gb`, `devices`, `steps_per_call` and `profile`.

    Raises:
        UserError: a value that cannot work, named with what was received and what was expected.
    """

    dataset: str = _flag(
        "data",
        "cycle_gan/NAME of TensorFlow Datasets (horse2zebra, monet2photo, ...); a folder with trainA, trainB and, optionally,"
        " testA, testB; or stripes, the embedded data set",
        "cycle_gan/horse2zebra",
        FREE,  # what is compared are the pictures' names: their folder may have moved
    )
    data_dir: str = _flag(
        "data", "folder of prepared TensorFlow Datasets (default: ~/tensorflow_datasets)", on_resume=FREE
    )
    image_size: int = _flag(
        "data", "side of the square pictures the networks see, in pixels, a multiple of 4 (default: 256; stripes: 64)"
    )
    load_size: int = _flag(
        "data",
        "training pictures are resized to this side, in pixels, and cropped at random to --image_size (default: 286 for"
        " 256, and in proportion; stripes: --image_size)",
    )
    cache: str = _flag(
        "data",
        "where decoded pictures are kept: ram: all are decoded before training starts; disk: each is decoded when it is first"
        " used, and kept in a file without a name in --output_dir while training runs; none: each is decoded each time; auto:"
        " ram for up to --cache_gb, disk above. Pictures of TensorFlow Datasets stay in memory as well, undecoded, but for ram",
        "auto",
        FREE,
        choices=("auto", "ram", "disk", "none"),
    )
    cache_gb: float = _flag(
        "data",
        "gigabytes of decoded pictures (3 bytes a pixel) up to which --cache auto is ram (default: a quarter of the free memory)",
        on_resume=FREE,
    )

    filters: int = _flag("networks", "channels after the first convolution (default: 64; stripes: 16)")
    residual_blocks: int = _flag(
        "networks", "residual blocks of a generator (default: 9; 6 for pictures under 256 pixels; stripes: 3)"
    )

    epochs: int = _flag("training", "passes over min(|X|, |Y|) pairs", 200, FREE)
    batch_size: int = _flag(
        "training", "image pairs per replica and step", 1, FREE
    )  # the global batch is what is compared
    lr: float = _flag("training", "learning rate of Adam (default: 0.0002; stripes: 0.001)", on_resume=WARN)
    beta_1: float = _flag("training", "Adam's decay of the mean gradient", 0.5, WARN)
    beta_2: float = _flag("training", "Adam's decay of the mean squared gradient", 0.999, WARN)
    lambda_cycle: float = _flag("training", "weight of the cycle losses", 10.0, WARN)
    lambda_identity: float = _flag("training", "weight of the identity losses; 0 leaves them out", 5.0, WARN)
    adversarial: str = _flag("training", "adversarial loss", "lsgan", WARN, choices=("lsgan", "bce"))
    seed: int = _flag(
        "training", "of the weights, the order of the pictures and their augmentation, below 2**32", 0, FIXED
    )
    max_bad_steps: int = _flag(
        "training",
        "steps in a row whose losses or gradients may be not finite (they update nothing), before training goes back to the last"
        " checkpoint; the second time it stops",
        10,
        FREE,
    )
    devices: int = _flag(
        "training",
        "use the first N GPUs; where there is no GPU, N logical CPU devices (default: every GPU, or the CPU once)",
        on_resume=FREE,
        metavar="N",
    )

    precision: str = _flag(
        "speed",
        "what the networks compute in; variables, statistics and losses are float32 always; auto: what suits the device",
        "auto",
        WARN,
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    xla: str = _flag(
        "speed",
        "compile forward and backward with XLA; auto: off, which is faster on CPUs (on GPUs it was not measured yet)",
        "auto",
        FREE,
        choices=("auto", "on", "off"),
    )
    steps_per_call: int = _flag(
        "speed",
        "training steps from one return to Python to the next, a divisor of --log_every; a run can be stopped and saved only"
        " between calls (auto, the default: few, or one where a step takes long)",
        on_resume=FREE,
        metavar="N",
        type=lambda text: None if text == "auto" else int(text),
    )
    no_peak: bool = _flag("speed", "do not look for the device's peak at start, so its share is not shown", False, FREE)
    profile: str = _flag(
        "speed",
        "write TensorFlow's profile of the steps after START up to END, counted over the whole run, for TensorBoard",
        None,
        FREE,
        metavar="START:END",
    )

    output_dir: str = _flag(
        "output", "the run's folder; it is resumed if it holds a run (default: runs/NAME)", None, FREE
    )
    clear_output_dir: bool = _flag("output", "remove the run that the folder holds and start over", False, FREE)
    verbose: int = _flag(
        "output", "0: only warnings; 1: bars and errors per epoch; 2: all losses too", 1, FREE, choices=(0, 1, 2)
    )
    plot_every: int = _flag("output", "epochs between sample pictures; there is always one at the end", 10, FREE)
    checkpoint_every: int = _flag("output", "epochs between checkpoints; there is always one at the end", 1, FREE)
    checkpoint_minutes: float = _flag(
        "output",
        "minutes between checkpoints inside of an epoch; 0 saves after every call, which has one step then by default",
        10.0,
        FREE,
    )
    log_every: int = _flag("output", "training steps between logged losses inside of an epoch", 100, FREE)
    keep: int = _flag("output", "checkpoints to keep, the newest ones", 3, FREE)

    def __post_init__(self):
        suited = SUITED.get(self.dataset, {})
        small = (self.image_size or suited.get("image_size", 256)) < 256
        general = {"image_size": 256, "filters": 64, "residual_blocks": 6 if small else 9, "lr": 2e-4}
        for name, value in {**general, **suited}.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        if self.load_size is None:
            larger = self.image_size if self.dataset in UNCROPPED else round(self.image_size * 286 / 256)
            object.__setattr__(self, "load_size", larger)
        if self.output_dir is None:
            object.__setattr__(self, "output_dir", os.path.join("runs", self.dataset_name))
        for name in ("output_dir", "data_dir"):
            if getattr(self, name):
                object.__setattr__(self, name, os.path.expanduser(getattr(self, name)))
        self._check()

    @property
    def dataset_name(self):
        """The last part of `dataset`: horse2zebra of cycle_gan/horse2zebra, photos of /data/photos/."""
        return pathlib.Path(os.path.expanduser(self.dataset)).resolve().name or "data"

    @property
    def profile_steps(self):
        """(START, END) of `profile`; `None` where it is not given or makes no sense."""
        numbers = PROFILE.fullmatch(self.profile or "")
        start, end = map(int, numbers.groups()) if numbers else (0, 0)
        return (start, end) if start < end else None

    def steps_together(self, flops, peak=0.0):
        """How many steps a call has: so few that it takes no longer than a step of usual networks.

        Args:
            flops: of a step, on all devices.
            peak: FLOP/s of all devices, 0 if not measured.
        """
        if self.steps_per_call:
            return self.steps_per_call
        if not self.checkpoint_minutes:
            return 1  # a checkpoint after every step was asked for
        most = max(1, min(MOST_STEPS, int(max(CALL_FLOPS, CALL_SECONDS * peak) / max(flops, 1.0))))
        return max(steps for steps in range(1, most + 1) if self.log_every % steps == 0)

    def _check(self):
        at_least = {"image_size": 16, "load_size": self.image_size, "filters": 1, "residual_blocks": 0, "epochs": 1}
        at_least.update(batch_size=1, seed=0, devices=1, plot_every=1, checkpoint_every=1, keep=1, log_every=1)
        at_least.update(max_bad_steps=1, steps_per_call=1)
        units = {
            "image_size": "pixels",
            "load_size": "pixels (--image_size)",
            "batch_size": "image pair per replica",
            "devices": "device",
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name} {value}: expected at least {least} {units.get(name, '')}".rstrip())
        if self.image_size % 4:
            raise UserError(f"--image_size {self.image_size}: expected a multiple of 4 (the generators halve it twice)")
        for name in ("lr", "lambda_cycle", "lambda_identity", "checkpoint_minutes", "cache_gb"):
            value = getattr(self, name)
            if value is not None and (not (math.isfinite(value) and value >= 0) or (name == "lr" and value == 0)):
                least = "above 0" if name == "lr" else "of at least 0"
                raise UserError(f"--{name} {value}: expected a finite number {least}")
        for name in ("beta_1", "beta_2"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)}: expected at least 0 and less than 1")
        for field in dataclasses.fields(self):
            choices = field.metadata["argument"].get("choices")
            if choices and getattr(self, field.name) not in choices:
                raise UserError(
                    f"--{field.name} {getattr(self, field.name)}: expected one of {', '.join(map(str, choices))}"
                )
        if self.steps_per_call and self.log_every % self.steps_per_call:
            raise UserError(
                f"--steps_per_call {self.steps_per_call}: expected a divisor of --log_every, which is {self.log_every}"
            )
        if self.profile is not None and not self.profile_steps:
            raise UserError(f"--profile {self.profile}: expected START:END, two numbers of steps with START < END")
        if self.seed > SEED_LIMIT:
            raise UserError(f"--seed {self.seed}: expected at most {SEED_LIMIT}")
        if not self.dataset:
            raise UserError("--dataset '': expected cycle_gan/NAME, a folder, or stripes")
        for name in ("output_dir", "data_dir"):
            if getattr(self, name) == "":
                raise UserError(f"--{name} '': expected a folder (is a shell variable not set?)")

    @classmethod
    def from_args(cls, argv=None):
        """The configuration that a command line asks for.

        Args:
            argv: list of strings; `None` means `sys.argv[1:]`. Flags may be written with `-` or `_`.

        Raises:
            UserError: a value that cannot work. Unknown flags and wrong types make argparse exit with code 2.
        """
        return cls(**vars(_parser(cls).parse_args(argv)))

    def save(self, path, stack, data):
        """Writes the configuration, the stack that it runs on and what it is trained on as JSON, whole or not at all.

        Args:
            stack, data: dicts of texts and numbers, see `layers.stack` and `sources.Domains.fingerprint`.
        """
        text = json.dumps({"config": dataclasses.asdict(self), "stack": stack, "data": data}, indent=2)
        partial = pathlib.Path(f"{path}.partial")
        partial.write_text(text + "\n", encoding="utf-8")
        partial.replace(path)

    @classmethod
    def load(cls, path):
        """Reads what `save` wrote. Returns (config, stack, data).

        Raises:
            UserError: the file is missing, is not ours, or has fields that this version does not know, named.
        """
        try:
            saved = json.loads(pathlib.Path(path).read_text(encoding="utf-8"))
            values, stack, data = (saved[part] for part in ("config", "stack", "data"))
            if not all(isinstance(part, dict) for part in (values, stack, data)):
                raise TypeError("its parts are no objects")
            unknown = {*(set(saved) - {"config", "stack", "data"}), *(set(stack) - {"keras", "tensorflow"})}
        except FileNotFoundError:
            raise UserError(
                f"{path}: no such file; expected the config.json of a run: restore it, or use another folder"
            ) from None
        except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
            raise UserError(
                f"{path} can't be read as the configuration of a run ({error!r}): restore it or use a new folder"
            ) from error
        fields = {field.name: field for field in dataclasses.fields(cls)}
        unknown = sorted(map(repr, unknown | (set(values) - set(fields))))
        if unknown:
            raise UserError(
                f"{path}: unknown fields {', '.join(unknown)}: it was written by another version;"
                " use that one, or another --output_dir"
            )
        for name, value in values.items():
            wanted = (float, int) if fields[name].type is float else (fields[name].type,)
            if value is None and fields[name].default is None:
                continue
            if type(value) not in wanted:
                raise UserError(f"{path}: {name} is {value!r:.80}, expected {fields[name].type.__name__}")
        try:
            return cls(**values), stack, data
        except (UserError, OverflowError, ValueError) as error:
            raise UserError(f"{path}: {error}") from None

    def changes(self, saved, on_resume):
        """What differs from the configuration `saved` among the fields of that kind, one text per field."""
        return [
            f"{field.name} {getattr(saved, field.name)!r} -> {getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.metadata["on_resume"] == on_resume and getattr(self, field.name) != getattr(saved, field.name)
        ]


class _Parser(argparse.ArgumentParser):
    def error(self, message):
        self.exit(2, f"{self.prog}: {message} (--help lists the flags)\n")


class _Help(argparse.HelpFormatter):
    """Says each default once: the text's own where it depends on other flags, the value otherwise."""

    def _get_help_string(self, action):
        known = action.default is not None and action.default is not False and action.dest != "help"
        return f"{action.help} (default: %(default)s)" if known else action.help


def _parser(config):
    parser = _Parser(
        prog="train.py",
        description="Train a CycleGAN between two unpaired sets of pictures, on every GPU there is.",
        epilog="The same command again resumes the run. CUDA_VISIBLE_DEVICES=0,1,2 python train.py uses three GPUs.",
        formatter_class=_Help,
        allow_abbrev=False,
    )
    groups = {}
    for field in dataclasses.fields(config):
        group = field.metadata["group"]
        groups.setdefault(group, parser.add_argument_group(group))
        names = [f"--{field.name}"]
        if "_" in field.name:
            names.append(f"--{field.name.replace('_', '-')}")
        argument = dict(field.metadata["argument"], help=field.metadata["help"], default=field.default)
        if field.type is bool:
            argument["action"] = "store_true"
        else:
            argument.setdefault("type", field.type)
        groups[group].add_argument(*names, **argument)
    return parser
