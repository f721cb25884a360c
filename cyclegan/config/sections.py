"""The sections of the configuration besides the data: the settings that every run has.

The settings of a component, such as an objective or a generator, stand in the file of the component. Its class extends
the section and implements the methods that raise `NotImplementedError` here.
"""

from __future__ import annotations

import dataclasses
import os
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Optional

from cyclegan.config.data import DataConfig
from cyclegan.config.fields import FREE, WARN, Section, flag, refuse
from cyclegan.errors import UserError, printable

if TYPE_CHECKING:
    import tensorflow as tf

AUGMENTATIONS = ("color", "translation", "cutout")
# Source and target domain of each direction, and its generator.
DIRECTIONS = {"x2y": ("X", "Y"), "y2x": ("Y", "X")}
GENERATOR_OF = {"x2y": "G", "y2x": "F"}
CALL_SECONDS = 0.1  # upper bound on the time of a call of several steps
MAX_STEPS_PER_CALL = 10
# In a URI: a user, with or without a password, or a secret among the parameters.
SECRET = re.compile(
    r"^(?!file:|sqlite:)[\w+.-]+:.*@|[?&;]\w*(pass|pwd|token|secret|key)\w*=", re.IGNORECASE | re.DOTALL
)


@dataclasses.dataclass(frozen=True)
class NetworkConfig(Section):
    """Architecture of generators and discriminators; `networks.generators` and `networks.discriminators` extend it."""

    variant: Literal["keras", "paper"] = flag("keras")
    """keras: no biases, normalizations learn scales and offsets; paper: the networks of pytorch-CycleGAN-and-pix2pix"""
    generator: str = flag("auto")
    """architecture of the generators, such as resnet_9blocks"""
    filters: int = flag(64, least=1)
    """channels after the first convolution (default: 64; stripes, scenes: 16)"""
    discriminator: str = flag("patch")
    """architecture of the discriminators"""
    norm: Literal["instance", "batch", "none"] = flag("instance")
    """normalization"""
    discriminator_norm: Literal["same", "spectral"] = flag("same")
    """normalization of the discriminators. same: as --norm says; spectral: each kernel is divided by its largest
    singular value"""
    norm_affine: Literal["auto", "yes", "no"] = flag(
        "yes", derive=lambda given: "yes" if (given["variant"], given["objective"]) == ("keras", "cyclegan") else "no"
    )
    """whether instance normalizations (--norm instance) learn scales and offsets; auto: with --variant keras and
    --objective cyclegan (default: auto)"""
    upsample: Literal["transpose", "resize"] = flag("transpose")
    """upsampling in the generators. transpose: transposed convolutions; resize: nearest neighbours and a convolution"""
    antialias: bool = flag(False)
    """ResNet generators and patch discriminators blur where they halve or double the sides, as in CUT; --upsample
    resize doubles as without"""
    dropout: float = flag(0.0, below=1)
    """share of the values that generators drop while training; 0 is off"""
    init: Literal["normal", "xavier", "kaiming", "orthogonal"] = flag("normal")
    """initial values of the convolutions"""

    @property
    def halvings(self) -> int:
        """How often the generators halve their input."""
        raise NotImplementedError

    @property
    def multiple(self) -> int:
        """Pixels by which the sides of the generators' input must be divisible."""
        return 1 << self.halvings

    @property
    def reach(self) -> int:
        """Pixels around an output pixel of the generators that influence it, at most; a multiple of `multiple`."""
        raise NotImplementedError

    def width(self, level: int) -> int:
        """Return the channels behind `level` layers that halve the image: doubled by each, up to 8 times --filters."""
        return self.filters * min(2**level, 8)

    def build_generator(self, blocks: Any, x: tf.Tensor, channels: int) -> tf.Tensor:
        """Append the layers of a generator, made by a `BlockBuilder`: [N, H, W, C] -> [N, H, W, channels]."""
        raise NotImplementedError

    def build_discriminator(self, blocks: Any, x: tf.Tensor) -> tf.Tensor:
        """Append the layers of a discriminator to x: [N, H, W, C] -> logits [N, h, w, 1]."""
        raise NotImplementedError

    def check_side(self, side: int) -> None:
        """Raise `UserError` if images of this side in pixels are too small for the discriminators."""


class AdversarialPair(NamedTuple):
    """A generator, "G" or "F", and the domain that it translates to, whose discriminator is "D_Y" or "D_X"."""

    generator: str
    domain: str

    @property
    def source(self) -> str:
        """The domain that the generator translates from."""
        return "X" if self.domain == "Y" else "Y"


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(Section):
    """Losses and their weights; the objectives in `methods` and the adversarial losses in `methods.losses` extend it.

    Attributes:
        directions: Directions of the generators; see `DIRECTIONS`.
        adversarial_weight: Weight of the generators' adversarial losses.
        compares_features: Whether the objective compares features of images and translations in a ResNet generator.
        compares_images: Whether the first of these features are the images themselves.
        penalizes_gradients: Whether the adversarial loss contains gradients of the discriminators.
    """

    directions: ClassVar[tuple[str, ...]]
    adversarial_weight: ClassVar[float] = 1.0
    compares_features: ClassVar[bool] = False
    compares_images: ClassVar[bool] = True
    penalizes_gradients: ClassVar[bool] = False

    objective: str = flag("cyclegan")
    """generators to train, and their losses"""
    adversarial: str = flag("lsgan", WARN)
    """adversarial loss"""
    r1: float = flag(0.0, WARN)
    """weight of R1, the penalty on the discriminators' gradients at real images"""
    pool_size: int = flag(0, derive=lambda settings: 0)
    """earlier translations per domain that the discriminators also see; 0 is off"""
    diffaugment: str = flag("", WARN)
    """random changes to the discriminators' input: any of color,translation,cutout"""

    @property
    def adversaries(self) -> tuple[AdversarialPair, ...]:
        """The generators and the domains that they translate to."""
        return tuple(AdversarialPair(GENERATOR_OF[each], DIRECTIONS[each][1]) for each in self.directions)

    @property
    def has_penalty(self) -> bool:
        """Whether the discriminator losses contain gradients of the discriminators."""
        return self.penalizes_gradients or self.r1 > 0

    @property
    def augmentations(self) -> tuple[str, ...]:
        """The parts of `diffaugment`."""
        return tuple(self.diffaugment.split(",")) if self.diffaugment else ()

    def generator_loss(self, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return the loss of a generator, which is small if its fakes look real. [N, H, W, 1] -> [N]."""
        raise NotImplementedError

    def discriminator_loss(self, real_logits: tf.Tensor, fake_logits: tf.Tensor) -> tf.Tensor:
        """Return half the sum of the losses on real images and on fakes. [N, H, W, 1] x 2 -> [N].

        The half slows the discriminators down relative to the generators (Zhu et al. 2017, section 4).
        """
        raise NotImplementedError

    def _check(self) -> None:
        if not set(self.augmentations) <= set(AUGMENTATIONS):
            refuse("diffaugment", self.diffaugment, f"any of {','.join(AUGMENTATIONS)}")


@dataclasses.dataclass(frozen=True)
class OptimizationConfig(Section):
    """Updates of the networks, and the length of training; `training.schedule` and `training.optimizers` extend it."""

    epochs: int = flag(200, FREE, least=1)
    """passes over the image pairs of an epoch, see --epoch_size"""
    batch_size: int = flag(1, FREE, least=1, unit="image pair per replica")  # resuming compares the global batch
    """image pairs per replica and step"""
    optimizer: str = flag("adam")
    """rule of the updates"""
    lr: float = flag(2e-4, WARN, positive=True)
    """learning rate (default: 0.0002; stripes, scenes: 0.001)"""
    lr_discriminator: float = flag(2e-4, WARN, positive=True, derive=lambda settings: settings["lr"])
    """learning rate of the discriminators (default: --lr)"""
    lr_schedule: str = flag("linear", WARN)
    """decay of the learning rates"""
    discriminator_steps: int = flag(1, WARN, least=1, metavar="N")
    """updates of the discriminators for --generator_steps updates of the generators"""
    generator_steps: int = flag(1, WARN, least=1, metavar="N")
    """updates of the generators for --discriminator_steps updates of the discriminators"""
    discriminator_warmup: int = flag(0, WARN, metavar="N")
    """first N steps of a run, which update only the discriminators (default: 0; 500 if --init_from has a
    generator without its discriminator)"""
    ema: float = flag(0.0, below=1)
    """decay of the moving average (EMA) of the generators' weights, used for all but training; 0 is off"""
    clip_norm: float = flag(0.0, WARN)
    """largest norm of the gradients of both generators, or of both discriminators; 0 is off"""
    weight_decay: float = flag(0.0, WARN)
    """weight of half the sum of the squares of all kernels in the losses"""
    seed: int = flag(0)
    """seed of the weights, the order of the images and their augmentation, below 2**32"""
    max_bad_steps: int = flag(10, FREE, least=1)
    """steps in a row with non-finite losses or gradients (they update nothing) after which training goes back to the
    last checkpoint; the second time it stops"""

    def decay_factor(self, epochs_done: float) -> float:
        """Return the factor in [0, 1] on the learning rates after `epochs_done` epochs, which may be fractional.

        It depends on the position alone: a run that is resumed with other --epochs continues as if begun with them.
        """
        raise NotImplementedError

    def make_optimizer(self, variables: Sequence[tf.Variable]) -> Any:
        """Return an optimizer like `training.optimizers.Adam`, with new state; call it in the scope of the strategy."""
        raise NotImplementedError


def choose_steps_per_call(seconds: float, log_every: int) -> int:
    """Return the largest divisor of `log_every` so that a call of as many steps takes at most `CALL_SECONDS`, or 1."""
    steps = range(1, MAX_STEPS_PER_CALL + 1)
    return max(n for n in steps if n == 1 or (n * seconds <= CALL_SECONDS and log_every % n == 0))


@dataclasses.dataclass(frozen=True)
class DistributionConfig(Section):
    """Devices and workers that train."""

    devices: Optional[int] = flag(on_resume=FREE, least=1, unit="device", metavar="N")
    """use the first N GPUs; without a GPU, N logical CPU devices (default: every GPU, or the CPU once)"""
    strategy: Literal["auto", "mirrored", "multiworker", "tpu", "one"] = flag("auto", FREE)
    """one: one device; mirrored: all devices of this machine; multiworker: the devices of all workers that TF_CONFIG or
    Slurm's variables name (docs/scaling.md); tpu: a TPU; auto: multiworker if several workers are named, else
    mirrored"""
    start_timeout: int = flag(300, FREE, least=1, unit="second", metavar="SECONDS")
    """seconds that workers wait for each other at start"""
    step_timeout: Optional[int] = flag(on_resume=FREE, least=1, unit="second", metavar="SECONDS")
    """end training with exit code 1 if no step, evaluation or checkpoint ends for SECONDS, because a worker or its
    storage is stuck; the first step takes longer than others (default: no limit)"""
    port: Optional[int] = flag(on_resume=FREE, least=1, metavar="N")
    """first port of the workers that Slurm starts on a machine (default: 20000 + the job's number modulo 10000)"""


@dataclasses.dataclass(frozen=True)
class PerformanceConfig(Section):
    """Precision, compilation, and the profile."""

    precision: Literal["auto", "float32", "bfloat16", "float16"] = flag("auto", WARN)
    """type in which the networks compute; variables, statistics and losses are always float32; auto: bfloat16 if the
    device multiplies it natively, else float32"""
    tf32: Literal["on", "off"] = flag("on", WARN)
    """on: GPUs of compute capability 8.0 or higher round the factors of float32 products to 10 bits (TF32), which is
    faster; without effect on CPUs and older GPUs"""
    xla: Literal["auto", "on", "off"] = flag("auto", FREE)
    """compile training steps with XLA; auto: on GPUs, time some steps with and without, and keep the faster; off on
    CPUs, where XLA is slower, and with --deterministic, --dropout or --norm batch"""
    deterministic: bool = flag(False, FREE)
    """make every operation give the same bits each time, on GPUs, too, where training becomes slower"""
    recompute: bool = flag(False, FREE)
    """compute the residual blocks of the generators again in the backward pass, which takes less memory and more time;
    without --norm batch and --dropout"""
    steps_per_call: Optional[int] = flag(on_resume=FREE, least=1, metavar="N")
    """training steps per call of the compiled train function, a divisor of --log_every; a run stops and saves only
    between calls (default: auto, several if a step is short at half of the peak speed; 1 with --no_peak)"""
    no_peak: bool = flag(False, FREE)
    """do not measure the device's peak speed at start, and do not show the share of it that training reaches"""
    profile: Optional[str] = flag(None, FREE, metavar="START:END")
    """write TensorFlow's profile of the steps after START up to END, counted over the whole run, for TensorBoard; it
    covers whole calls of --steps_per_call, and the validation between them"""

    @property
    def profile_steps(self) -> Optional[tuple[int, int]]:
        """(START, END) of `profile`; `None` without a profile, or if START is not below END."""
        start, _, end = (self.profile or "").partition(":")
        return (int(start), int(end)) if start.isdecimal() and end.isdecimal() and int(start) < int(end) else None

    def _check(self) -> None:
        if self.profile is not None and not self.profile_steps:
            refuse("profile", self.profile, "START:END, two numbers of steps with START < END")


@dataclasses.dataclass(frozen=True)
class EvaluationConfig(Section):
    """Interval and features of the scores of the generators."""

    evaluate_every: int = flag(0, FREE)
    """epochs between evaluations of FID and KID on held-out images, with one at the end; the checkpoints with the
    lowest KID are kept as best-x2y and best-y2x; 0 is off"""
    evaluate_features: str = flag("random", FREE, metavar="KIND")
    """features that FID and KID compare. random: a fixed random network; inception: the network of Keras; fid, fid-tf1,
    fid-clean: the network of published FIDs. Weights are downloaded once, or read from a file: KIND:FILE"""
    patience: int = flag(0, FREE, metavar="N")
    """end training after N evaluations in a row in which the KID of no direction was the lowest so far; 0 is off"""

    def _check(self) -> None:
        if self.patience and not self.evaluate_every:
            refuse("patience", self.patience, "--evaluate_every, too")

    @property
    def meaning(self) -> str:
        """Description of the scores."""
        published = "" if self.evaluate_features.startswith("fid") else ", not those of published FIDs"
        return f"FID and KID compare the features {self.evaluate_features}{published}"


@dataclasses.dataclass(frozen=True)
class RunConfig(Section):
    """Folder of a run, and the intervals of its output."""

    preset: Optional[Literal["paper", "tutorial", "cut", "fastcut", "dclgan", "fast", "demo"]] = flag(None, FREE)
    """a named set of flags, printed when used; flags given by hand win"""
    output_dir: str = flag(
        os.path.join("runs", "horse2zebra"),
        FREE,
        derive=lambda settings: os.path.join("runs", DataConfig(settings["dataset"]).name),
        is_path=True,
    )
    """folder of the run; if it already holds a run, training resumes it with its settings (default: runs/NAME)"""
    clear_output_dir: bool = flag(False, FREE)
    """remove the run in --output_dir and start over"""
    init_from: Optional[str] = flag(metavar="PATH", is_path=True)
    """begin a new run with the weights of another run: its folder, or RUN/checkpoints/NAME for a checkpoint that is not
    the newest; or of .pth files of pytorch-CycleGAN-and-pix2pix or CUT: their folder, or one of them. The networks get
    the settings that belong to the weights (default: random weights)"""
    verbose: Literal[0, 1, 2] = flag(1, FREE, nargs="?", const=2)
    """0: only warnings; 1: progress bars and errors per epoch; 2, or no value: all losses too"""
    plot_every: int = flag(10, FREE, least=1)
    """epochs between sample images, which also follow epochs 1, 2, 5, 10 and the last one"""
    checkpoint_every: int = flag(1, FREE, least=1)
    """epochs between checkpoints; the end of training always has one"""
    checkpoint_minutes: float = flag(10.0, FREE)
    """minutes between checkpoints within an epoch; 0 saves after every call, which then has one step by default"""
    log_every: int = flag(100, FREE, least=1)
    """training steps between logged losses within an epoch"""
    wandb: Optional[str] = flag(None, FREE, metavar="PROJECT")
    """project, or ENTITY/PROJECT, of Weights & Biases that also gets metrics, sample images and settings; needs the
    package wandb (default: none)"""
    mlflow: Optional[str] = flag(None, FREE, metavar="URI")
    """MLflow server or store that also gets metrics, sample images and settings; needs the package mlflow, or
    mlflow-skinny for a server (default: none)"""
    keep: int = flag(3, FREE, least=1)
    """number of checkpoints to keep, the newest ones"""
    keep_every: int = flag(0, FREE, metavar="N")
    """also keep a checkpoint of every Nth epoch; 0 is off"""

    def _check(self) -> None:
        if any("\ud800" <= letter <= "\udfff" for letter in self.output_dir):  # bytes that are not UTF-8
            refuse("output_dir", printable(self.output_dir), "a name in UTF-8, as TensorFlow writes names")
        if os.path.realpath(self.output_dir) == os.path.realpath(os.sep):
            refuse("output_dir", self.output_dir, "a folder below it, because a run fills its folder with files")
        if SECRET.search(self.mlflow or ""):  # the text does not repeat it
            raise UserError(
                "--mlflow: the URI has a user, a password or a token, which config.json and MLflow would show; expected"
                " a URI without: set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN,"
                " or use the database's own password file"
            )
