"""The command line as a frozen, checked, saved dataclass; no TensorFlow.

A field's metadata says all there is to know about its flag: the group it is listed under, its help text, and what may
happen to it when a run is resumed.
"""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import re

from cyclegan.config import command_line
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
RESNET = re.compile(r"resnet_(\d{1,3})blocks", re.ASCII)
UNETS = {"unet_256": 256, "unet_128": 128}  # sides of pictures have to be multiples of this, in pixels
AUGMENTATIONS = ("color", "translation", "cutout")
GENERAL = {"image_size": 256, "filters": 64, "lr": 2e-4}
# Settings that suit a data set better than the general defaults; flags given by hand win.
SUITED = {
    "stripes": {"image_size": 64, "filters": 16, "residual_blocks": 3, "lr": 1e-3},
}
UNCROPPED = ("stripes",)  # every picture is drawn another way already: load_size is image_size


# Named sets of flags.
PRESETS = {
    "paper": {
        **{"variant": "paper", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "load_size": 286},
        **{"epochs": 200, "decay_from": 100, "lr": 2e-4, "beta_1": 0.5, "beta_2": 0.999, "pool_size": 50},
    },
    "tutorial": {
        **{"variant": "keras", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "load_size": 286},
        **{"epochs": 200, "lr_schedule": "constant", "lr": 2e-4, "beta_1": 0.5, "beta_2": 0.9, "pool_size": 0},
    },
    "fast": {"image_size": 128, "load_size": 143, "generator": "resnet_6blocks", "filters": 32, "epochs": 100},
    "demo": {"dataset": "stripes", "epochs": 5, "plot_every": 1, "output_dir": os.path.join("runs", "demo")},
}
# What follows from other settings where it is not given.
FOLLOWING = ("decay_from", "load_size", "image_width", "lambda_identity", "lr_discriminator", "norm_affine")
# Settings that do nothing unless others are so: how, and whether they are.
USED_WITH = {
    "load_size": (
        "--preprocess resize_and_crop, scale_width or scale_width_and_crop",
        lambda config: config.preprocess not in ("crop", "none") or config.dataset == "stripes",  # drawn at that size
    ),
    "cache_gb": ("--cache auto", lambda config: config.cache == "auto"),
    "discriminator_layers": ("--discriminator patch", lambda config: config.discriminator == "patch"),
    "norm_affine": ("--norm instance", lambda config: config.norm == "instance"),
    "decay_from": ("--lr_schedule linear or cosine", lambda config: config.lr_schedule != "constant"),
    "lambda_gp": ("--adversarial wgan-gp", lambda config: config.adversarial == "wgan-gp"),
    "label_smoothing": (
        "--adversarial lsgan or bce, which have labels,",
        lambda config: config.adversarial in ("lsgan", "bce"),
    ),
    "evaluate_features": ("--evaluate_every N", lambda config: config.evaluate_every),
}
# What each worker may have its own way: where things are on its machine, and how much it says.
OF_A_WORKER = (
    "dataset",
    "data_dir",
    "output_dir",
    "cache",
    "cache_gb",
    "preset",
    "verbose",
    "no_peak",
    "start_timeout",
)
OF_A_START = ("output_dir", "clear_output_dir", "preset", "profile")  # not taken over from a saved configuration


def _flag(group, help, default=None, on_resume=FIXED, **argument):
    metadata = {"group": group, "help": help, "on_resume": on_resume, "argument": argument}
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Config:
    """Everything one can ask of a training run. Values are checked when an instance is made.

    `None` stands for a default that depends on other fields; `Config.from_args` and `Config()` fill it in, so that a
    finished instance holds no `None` but in `data_dir`, `cache_gb`, `devices`, `port`, `steps_per_call` and `profile`.

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
        "data",
        "side of the pictures the networks see, in pixels, a multiple of 4; their height where --image_width is given"
        " (default: 256; stripes: 64)",
    )
    image_width: int = _flag("data", "their width in pixels, where they are not square (default: --image_size)")
    load_size: int = _flag(
        "data",
        "training pictures are resized to this side, in pixels, and cropped at random to --image_size; not with"
        " --preprocess crop or none (default: 286 for 256, and in proportion; stripes: --image_size)",
    )
    preprocess: str = _flag(
        "data",
        "what training pictures go through: resized to --load_size and cropped at random to --image_size (resize_and_crop); only"
        " cropped; their width scaled to --load_size (scale_width), and cropped; none: only made a multiple of 4. Without a"
        " crop, all pictures have to come out of one size; --image_size is only the least height of scale_width then",
        "resize_and_crop",
        choices=("resize_and_crop", "crop", "scale_width", "scale_width_and_crop", "none"),
    )
    no_flip: bool = _flag("data", "do not flip training pictures at random", False, WARN)
    max_dataset_size: int = _flag("data", "use at most the first N pictures of each folder (default: all)", metavar="N")
    channels_x: int = _flag("data", "channels of the pictures of domain X: 1 is gray, 3 is RGB, others as they are", 3)
    channels_y: int = _flag("data", "channels of the pictures of domain Y", 3)
    cache: str = _flag(
        "data",
        "where decoded pictures are kept: ram: all are decoded before training starts; disk: each is decoded when it is first"
        " used, and kept in a file without a name in --output_dir (of several workers: in TMPDIR) while training runs; none: each"
        " is decoded each time; auto: ram for up to --cache_gb, disk above",
        "auto",
        FREE,
        choices=("auto", "ram", "disk", "none"),
    )
    cache_gb: float = _flag(
        "data",
        "gigabytes of decoded pictures (a byte per pixel and channel, or two) up to which --cache auto is ram (default: a quarter"
        " of the free memory)",
        on_resume=FREE,
    )

    variant: str = _flag(
        "networks",
        "keras: no biases, normalizations learn scales and offsets; paper: the networks of pytorch-CycleGAN-and-pix2pix",
        "keras",
        choices=("keras", "paper"),
    )
    generator: str = _flag(
        "networks",
        "resnet_9blocks, resnet_6blocks (or another number), unet_256, unet_128; auto: a ResNet of --residual_blocks",
        "auto",
    )
    residual_blocks: int = _flag(
        "networks", "residual blocks of a ResNet generator (default: 9; 6 for pictures under 256 pixels; stripes: 3)"
    )
    filters: int = _flag("networks", "channels after the first convolution (default: 64; stripes: 16)")
    discriminator: str = _flag(
        "networks", "patch: a PatchGAN; pixel: judges every pixel by itself", "patch", choices=("patch", "pixel")
    )
    discriminator_layers: int = _flag(
        "networks", "layers of a PatchGAN that halve the picture or widen the view; 3 sees patches of 70 x 70 pixels", 3
    )
    norm: str = _flag("networks", "normalization", "instance", choices=("instance", "batch", "none"))
    norm_affine: str = _flag(
        "networks",
        "whether instance normalizations (--norm instance) learn scales and offsets; auto: with --variant keras",
        "auto",
        choices=("auto", "yes", "no"),
    )
    upsample: str = _flag(
        "networks",
        "how generators enlarge: transpose: transposed convolutions; resize: nearest neighbours and a convolution",
        "transpose",
        choices=("transpose", "resize"),
    )
    dropout: float = _flag("networks", "share of the values dropped in the generators while training; 0 is off", 0.0)
    init: str = _flag(
        "networks",
        "initial values of the convolutions",
        "normal",
        choices=("normal", "xavier", "kaiming", "orthogonal"),
    )

    epochs: int = _flag("training", "passes over min(|X|, |Y|) pairs", 200, FREE)
    batch_size: int = _flag(
        "training", "image pairs per replica and step", 1, FREE
    )  # the global batch is what is compared
    lr: float = _flag("training", "learning rate of Adam (default: 0.0002; stripes: 0.001)", on_resume=WARN)
    lr_discriminator: float = _flag("training", "that of the discriminators (default: --lr)", on_resume=WARN)
    lr_schedule: str = _flag(
        "training",
        "from --decay_from on, the learning rates go to zero in a straight line or along half a cosine; constant: never",
        "linear",
        WARN,
        choices=("linear", "cosine", "constant"),
    )
    decay_from: int = _flag(
        "training",
        "epochs with constant learning rates; not with --lr_schedule constant (default: half of --epochs)",
        on_resume=WARN,
    )
    beta_1: float = _flag("training", "Adam's decay of the mean gradient", 0.5, WARN)
    beta_2: float = _flag("training", "Adam's decay of the mean squared gradient", 0.999, WARN)
    lambda_cycle: float = _flag("training", "weight of the cycle losses", 10.0, WARN)
    lambda_identity: float = _flag("training", "weight of the identity losses; 0 leaves them out", 5.0, WARN)
    adversarial: str = _flag(
        "training", "adversarial loss", "lsgan", WARN, choices=("lsgan", "bce", "hinge", "wgan-gp")
    )
    lambda_gp: float = _flag("training", "weight of the gradient penalty of wgan-gp", 10.0, WARN)
    r1: float = _flag(
        "training", "weight of R1, the penalty on the discriminators' gradients at real pictures", 0.0, WARN
    )
    label_smoothing: float = _flag(
        "training", "discriminators take real pictures for 1 - this (lsgan and bce)", 0.0, WARN
    )
    pool_size: int = _flag(
        "training", "earlier translations of each domain kept to train discriminators on; 0 is off", 50
    )
    diffaugment: str = _flag(
        "training", "what discriminators see is changed at random: any of color,translation,cutout", "", WARN
    )
    discriminator_steps: int = _flag(
        "training", "updates of the discriminators for --generator_steps of the generators", 1, WARN, metavar="N"
    )
    generator_steps: int = _flag(
        "training", "updates of the generators for --discriminator_steps of the discriminators", 1, WARN, metavar="N"
    )
    ema: float = _flag(
        "training", "decay of the running means of the generators' weights, used for all but training; 0 is off", 0.0
    )
    clip_norm: float = _flag(
        "training", "largest norm of the gradients of both generators, or discriminators; 0 is off", 0.0, WARN
    )
    weight_decay: float = _flag(
        "training", "weight of half the sum of the squares of all kernels in the losses", 0.0, WARN
    )
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
        "devices",
        "use the first N GPUs; where there is no GPU, N logical CPU devices (default: every GPU, or the CPU once)",
        on_resume=FREE,
        metavar="N",
    )
    strategy: str = _flag(
        "devices",
        "one: one device; mirrored: all devices of this machine; multiworker: those of all workers that TF_CONFIG or Slurm's"
        " variables name (docs/scaling.md); tpu: a TPU; auto: multiworker where several are named, or mirrored",
        "auto",
        FREE,
        choices=("auto", "mirrored", "multiworker", "tpu", "one"),
    )
    start_timeout: int = _flag(
        "devices", "seconds that workers wait for each other at start", 300, FREE, metavar="SECONDS"
    )
    port: int = _flag(
        "devices",
        "first port of the workers that Slurm starts on a machine (default: 20000 + the job's number modulo 10000)",
        on_resume=FREE,
        metavar="N",
    )

    precision: str = _flag(
        "speed",
        "what the networks compute in; variables, statistics and losses are float32 always; auto: bfloat16 where the device"
        " multiplies it, float32 elsewhere",
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
        type=command_line.count_or_auto,
    )
    no_peak: bool = _flag(
        "speed",
        "do not look for the device's peak at start: its share is not shown, and on a CPU --steps_per_call may be less",
        False,
        FREE,
    )
    profile: str = _flag(
        "speed",
        "write TensorFlow's profile of the steps after START up to END, counted over the whole run, for TensorBoard; of whole"
        " calls of --steps_per_call, and of the testing between them",
        None,
        FREE,
        metavar="START:END",
    )

    preset: str = _flag(
        "output", "a named set of flags, printed when used; flags given by hand win", None, FREE, choices=tuple(PRESETS)
    )
    output_dir: str = _flag(
        "output", "the run's folder; it is resumed if it holds a run (default: runs/NAME)", None, FREE
    )
    clear_output_dir: bool = _flag("output", "remove the run that the folder holds and start over", False, FREE)
    verbose: int = _flag(
        "output", "0: only warnings; 1: bars and errors per epoch; 2: all losses too", 1, FREE, choices=(0, 1, 2)
    )
    plot_every: int = _flag("output", "epochs between sample pictures; there is always one at the end", 10, FREE)
    evaluate_every: int = _flag(
        "output",
        "epochs between FID and KID of the test pictures, and one more at the end; the checkpoints with the lowest KID are kept as"
        " best-x2y and best-y2x; 0 is off",
        0,
        FREE,
    )
    evaluate_features: str = _flag(
        "output",
        "what these compare: random, a fixed random network; inception, with weights that are downloaded once; or a file of these",
        "random",
        FREE,
        metavar="KIND",
    )
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
        suited = {**GENERAL, **SUITED.get(self.dataset, {})}
        blocks = suited.pop("residual_blocks", None)
        self._fill_in(**suited)
        self._fill_in(image_width=self.image_size, lr_discriminator=self.lr, decay_from=self.epochs // 2)
        larger = self.image_size if self.dataset in UNCROPPED else round(self.image_size * 286 / 256)
        self._fill_in(load_size=larger, output_dir=os.path.join("runs", self.dataset_name))
        self._name_the_generator(blocks or (6 if self.image_size < 256 else 9))
        if self.norm_affine == "auto":
            self._set(norm_affine="yes" if self.variant == "keras" else "no")
        if self.channels_x != self.channels_y:
            self._set(lambda_identity=0.0)
        for name in ("output_dir", "data_dir"):
            if getattr(self, name):
                self._set(**{name: os.path.expanduser(getattr(self, name))})
        self._check()

    def _set(self, **values):
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def _fill_in(self, **defaults):
        self._set(**{name: value for name, value in defaults.items() if getattr(self, name) is None})

    def _name_the_generator(self, blocks):
        """Makes `generator` and `residual_blocks` say the same. `blocks` is the number of residual blocks by default."""
        resnet = RESNET.fullmatch(self.generator)
        if self.generator == "auto":
            self._fill_in(residual_blocks=blocks)
            self._set(generator=f"resnet_{self.residual_blocks}blocks")
        elif resnet:
            self._fill_in(residual_blocks=int(resnet[1]))
            if self.residual_blocks != int(resnet[1]):
                raise UserError(
                    f"--residual_blocks {self.residual_blocks}: --generator {self.generator} says otherwise"
                )
        elif self.generator not in UNETS:
            raise UserError(
                f"--generator {self.generator}: expected auto, resnet_9blocks (or another number), {', '.join(UNETS)}"
            )
        elif self.residual_blocks is not None:
            raise UserError(
                f"--residual_blocks {self.residual_blocks}: --generator {self.generator} has none; expected no such flag"
            )

    @property
    def image_shape(self):
        """(height, width) of the pictures that the networks see, in pixels."""
        return self.image_size, self.image_width

    @property
    def load_shape(self):
        """(height, width) that training pictures are resized to before they are cropped, in pixels."""
        return self.load_size, round(self.load_size * self.image_width / self.image_size)

    @property
    def has_penalty(self):
        """Whether discriminators descend a function of their own gradients."""
        return self.adversarial == "wgan-gp" or self.r1 > 0

    @property
    def multiple(self):
        """What the sides of the pictures that the networks see are multiples of, in pixels."""
        return UNETS.get(self.generator, 4)

    @property
    def unused(self):
        """Names of the settings that do nothing with what the others are, a set."""
        return {name for name, (_, is_used) in USED_WITH.items() if not is_used(self)}

    @property
    def preset_flags(self):
        """What of `preset` is in effect, as on a command line; empty without one."""
        stands_for = {name: value for name, value in PRESETS.get(self.preset, {}).items() if name not in self.unused}
        return " ".join(f"--{name} {value}" for name, value in stands_for.items() if getattr(self, name) == value)

    @property
    def augmentations(self):
        """The parts of `diffaugment`, a tuple of texts."""
        return tuple(part for part in self.diffaugment.split(",") if part)

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

    def of_all_workers(self):
        """The settings that have to be the same for all workers that train together, a dict by name."""
        return {
            field.name: getattr(self, field.name) for field in dataclasses.fields(self) if field.name not in OF_A_WORKER
        }

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
        crops = self.preprocess in ("resize_and_crop", "scale_width_and_crop")
        at_least = {
            **{"image_size": 16, "image_width": 16, "filters": 1, "residual_blocks": 0, "discriminator_layers": 1},
            **{"load_size": (self.image_size if "resize" in self.preprocess else self.image_width) if crops else 16},
            **dict.fromkeys(
                ("channels_x", "channels_y", "max_dataset_size", "batch_size", "devices", "epochs", "keep"), 1
            ),
            **dict.fromkeys(("plot_every", "checkpoint_every", "log_every", "max_bad_steps", "steps_per_call"), 1),
            **dict.fromkeys(("discriminator_steps", "generator_steps", "start_timeout", "port"), 1),
            **dict.fromkeys(("seed", "pool_size", "decay_from", "evaluate_every"), 0),
        }
        cropped = " (--image_size)" if "resize" in self.preprocess else " (--image_width)"
        units = {
            "image_size": "pixels",
            "image_width": "pixels",
            "load_size": "pixels" + (cropped if crops else ""),
            "batch_size": "image pair per replica",
            "devices": "device",
            "start_timeout": "second",
        }
        for name, least in at_least.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise UserError(f"--{name} {value}: expected at least {least} {units.get(name, '')}".rstrip())
        multiple = self.multiple
        for name in ("image_size", "image_width"):
            if getattr(self, name) % multiple:
                times = {4: "twice", 128: "7 times", 256: "8 times"}[multiple]
                raise UserError(
                    f"--{name} {getattr(self, name)}: expected a multiple of {multiple} (the generators halve it {times})"
                )
        layers, side = self.discriminator_layers, min(self.image_shape)
        needed = 3 if self.variant == "paper" else 1  # its last two layers each take away a pixel
        if self.discriminator == "patch" and side >> min(layers, 64) < needed:
            raise UserError(
                f"--discriminator_layers {layers}: halves pictures of {side} pixels to fewer than {needed}; expected fewer layers"
                " or larger pictures"
            )
        not_negative = ("lambda_cycle", "lambda_identity", "lambda_gp", "r1", "clip_norm", "weight_decay")
        for name in ("lr", "lr_discriminator", *not_negative, "checkpoint_minutes", "cache_gb"):
            value = getattr(self, name)
            positive = name.startswith("lr")
            if value is not None and (not (math.isfinite(value) and value >= 0) or (positive and value == 0)):
                least = "above 0" if positive else "of at least 0"
                raise UserError(f"--{name} {value}: expected a finite number {least}")
        for name in ("beta_1", "beta_2", "dropout", "ema", "label_smoothing"):
            if not 0 <= getattr(self, name) < 1:
                raise UserError(f"--{name} {getattr(self, name)}: expected at least 0 and less than 1")
        if self.norm == "batch" and self.has_penalty:
            penalty = f"--r1 {self.r1}" if self.r1 else f"--adversarial {self.adversarial}"
            raise UserError(
                f"--norm batch: {penalty} needs samples that have no say in each other; expected instance or none"
            )
        if self.norm == "batch" and self.xla == "on":
            raise UserError(
                "--norm batch: its statistics are summed over the replicas, which --xla on can't; expected --xla off"
            )
        if unknown := [part for part in self.augmentations if part not in AUGMENTATIONS]:
            raise UserError(
                f"--diffaugment {self.diffaugment}: {unknown[0]}: expected any of {','.join(AUGMENTATIONS)}"
            )
        for field in dataclasses.fields(self):
            choices = field.metadata["argument"].get("choices")
            if choices and getattr(self, field.name) not in (*choices, field.default):
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
        if not self.evaluate_features:
            raise UserError(
                "--evaluate_features '': expected random, inception or a file (is a shell variable not set?)"
            )
        for name in ("output_dir", "data_dir"):
            if getattr(self, name) == "":
                raise UserError(f"--{name} '': expected a folder (is a shell variable not set?)")

    @classmethod
    def from_args(cls, argv=None, **found):
        """The configuration that a command line asks for.

        Args:
            argv: list of strings; `None` means `sys.argv[1:]`. Flags may be written with `-` or `_`. They win over what a file
                given by --config has, which wins over what --preset stands for, which wins over the defaults. What follows from
                other settings follows from the winners, whatever it was in the file; and what does nothing with them is left out.
            found: values that win over all of these.

        Raises:
            UserError: a value that cannot work, or a flag of `argv` that does nothing with the others. Unknown flags and wrong
                types make argparse exit with code 2.
        """
        typed = command_line.parse(cls, argv)
        file = typed.pop("config", None)
        given = {**typed, **found}
        preset = PRESETS.get(given.get("preset"), {})
        values = {**cls._chosen(preset)}
        if file:
            saved = dataclasses.asdict(cls.load(file)[0])
            values.update(cls._chosen({name: value for name, value in saved.items() if name not in OF_A_START}))
        if {"generator", "residual_blocks"} & set(given):  # they say the same: a new one replaces both
            values = {name: value for name, value in values.items() if name not in ("generator", "residual_blocks")}
        values.update(given)
        if values.get("dataset") != preset.get("dataset") and "output_dir" not in given:
            values.pop("output_dir", None)  # the preset's is for the preset's pictures
        config = cls(**values)
        config._refuse_unused(typed)
        return cls(**{name: value for name, value in values.items() if name not in config.unused})

    def _refuse_unused(self, typed):
        for name in USED_WITH:
            if name in self.unused & set(typed) and typed[name] != type(self).__dataclass_fields__[name].default:
                wanted, _ = USED_WITH[name]
                raise UserError(f"--{name} {typed[name]}: does nothing here; expected it with {wanted} only")

    @classmethod
    def _chosen(cls, values):
        """Some values of fields without those that follow from the others, and will from those that win over them."""
        whole = cls(**values)
        for name in (name for name in FOLLOWING if name in values):
            rest = {other: value for other, value in values.items() if other != name}
            with contextlib.suppress(UserError):  # which may not do without
                values = rest if cls(**rest) == whole else values
        return values

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
        """What differs from the configuration `saved` among the fields of that kind that are used, one text per field."""
        return [
            f"{field.name} {getattr(saved, field.name)!r} -> {getattr(self, field.name)!r}"
            for field in dataclasses.fields(self)
            if field.metadata["on_resume"] == on_resume
            and field.name not in self.unused
            and getattr(self, field.name) != getattr(saved, field.name)
        ]
