"""A trained generator as a file for other programs: written, loaded again by what will run it, and compared; then put in place."""

import dataclasses
import importlib.util
import os
import pathlib
import re
import tempfile
import typing
import warnings

import numpy as np
import tensorflow as tf

from cyclegan import console
from cyclegan.data import folder_source, loading, stripes
from cyclegan.errors import UserError, printable
from cyclegan.export import portable

TOLERANCE = 1e-3  # how far values in [-1, 1] may be from those of the network
FLOAT16_TOLERANCE = 0.02  # the same, for weights that were rounded to float16
OPSET = 17  # of ONNX; ONNX Runtime reads it from 1.12 on
COMPARED = 2  # pictures, at each size
INPUT, OUTPUT = "picture", "translated"  # the names of what goes in and comes out
EVERYTHING = re.compile(b"")


class ExportError(UserError):
    """The file does not do what the network does, although everything that was asked for was right."""

    exit_code = 1


@dataclasses.dataclass(frozen=True)
class Format:
    """A kind of file, or of folder.

    `write`: called with a model of `portable.network`, a path and whether weights are to be float16. `load`: called with the path,
    gives a function from [N, H, W, C] to [N, H, W, C], arrays. `packages`: what these two need beside TensorFlow.
    """

    write: typing.Callable
    load: typing.Callable
    packages: tuple = ()


def check(out, format, float16=False, overwrite=False):
    """Looks whether an export can be made, before anything is computed; see `export`.

    Raises:
        UserError: packages are missing, or `out` is no name for such an export, or is taken.
    """
    out, missing = pathlib.Path(out), [name for name in FORMATS[format].packages if not importlib.util.find_spec(name)]
    if missing:
        raise UserError(f"--format {format} needs {', '.join(missing)}: install with pip install -r requirements.txt")
    if float16 and format != "tflite":
        raise UserError(f"--float16 with --format {format}: expected it with tflite only")
    if format == "keras" and out.suffix != ".keras":
        raise UserError(f"{printable(out)}: expected a name that ends with .keras, as Keras loads no other")
    if not out.parent.is_dir():
        raise UserError(f"{printable(out)}: no folder {printable(out.parent)}: make it, or name another")
    if not os.path.lexists(out):
        return
    if not overwrite:
        raise UserError(f"{printable(out)} is there already; expected another name, or --overwrite to replace it")
    if out.is_dir() and not (format == "savedmodel" and (out / "saved_model.pb").is_file()):
        raise UserError(f"{printable(out)}: a folder, and no SavedModel that --format savedmodel could replace")


def export(generator, out, format, compared, uint8=False, float16=False, size=None, overwrite=False):
    """Exports a generator. There is a file, or in the place of an old one a new one, only if it does what the network does.

    Args:
        generator: of `models.generator`, computing in float32.
        out: the path of the file, or of the folder of a SavedModel.
        format: of `FORMATS`.
        compared: uint8 pictures [H, W, C], of sizes that the generator takes (and, with `size`, of this one).
        uint8, size: see `portable.network`.
        float16: round the weights to float16; they take half the place. For tflite only.
        overwrite: replace what is at `out`.

    Returns:
        The largest difference from the network on `compared`: of values in [-1, 1]; with `uint8` in grey levels, from
        what the network gives before it is rounded.

    Raises:
        UserError: see `check`; or it can't be written.
        ExportError: the difference is larger than `tolerance` says, or is not a number.
    """
    out, form = pathlib.Path(out), FORMATS[format]
    check(out, format, float16, overwrite)
    try:
        with tempfile.TemporaryDirectory(prefix=".export-", dir=out.parent) as folder:
            made = pathlib.Path(folder) / out.name
            with console.start(EVERYTHING), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # converters and runtimes warn about themselves, users can't help it
                form.write(portable.network(generator, uint8, size), made, float16)
                difference = _difference(form.load(made), generator, compared, uint8)
            most = tolerance(uint8, float16)
            if not difference <= most:  # so written that NaN is refused
                raise ExportError(
                    f"{format}: its pictures differ from the network's by up to {difference:.2g}, expected at most {most:g};"
                    f" {printable(out)} was not written"
                )
            _put(made, out)
    except OSError as error:
        raise UserError(f"{printable(out)} can't be written: {printable(error)}") from error
    return difference


def tolerance(uint8, float16):
    """The largest difference that is allowed: of values in [-1, 1]; with `uint8` in grey levels, half of one for rounding."""
    most = FLOAT16_TOLERANCE if float16 else TOLERANCE
    return 0.5 + 127.5 * most if uint8 else most


def pictures_for(config, direction, files=(), size=None):
    """Pictures to compare on: some files, or the first of the run's test pictures, or drawn ones.

    Args:
        config: the run's `Config`; its test pictures are taken if its data set is a folder that is still there, or is prepared.
        direction: "x2y" or "y2x".
        files: paths of pictures.
        size: (height, width) in pixels; by default each is taken at two sizes, the run's own and a larger one.

    Returns:
        (uint8 pictures [H, W, C], what they are as a text).

    Raises:
        UserError: a file is no picture with as many channels as the generator takes.
    """
    domain, channels = ("A", config.channels_x) if direction == "x2y" else ("B", config.channels_y)
    height, width = config.image_shape
    sizes = [size] if size else [(height, width), (height + config.multiple, width + 2 * config.multiple)]
    shown = " and ".join(f"{height} x {width}" for height, width in sizes) + " pixels"
    where = "given"
    if not files:
        where, files = _of_the_run(config, domain)
    if not files:
        return _drawn(domain, channels, sizes), f"{COMPARED} drawn pictures, {shown}"
    return _read(files, channels, sizes), f"{len(files)} pictures ({printable(where)}), {shown}"


def _of_the_run(config, domain):
    """(where they are from, files) of the first test pictures that the run has, where they are still there."""
    folders = [pathlib.Path(config.dataset).expanduser() / f"{split}{domain}" for split in ("test", "train")]
    for folder in filter(pathlib.Path.is_dir, folders):
        return folder, [folder / name for name in folder_source.find_images(folder)[:COMPARED]]
    prepared_in = pathlib.Path(config.data_dir or "~/tensorflow_datasets").expanduser() / config.dataset
    if config.dataset.startswith("cycle_gan/") and any(prepared_in.glob("*/dataset_info.json")):
        from cyclegan.data import tfds_source

        split = f"test{domain}"
        builder = tfds_source.cycle_gan_builder(config.dataset, config.data_dir)
        return f"{config.dataset}, {split}", tfds_source.read({split: builder}, COMPARED)[0][split]
    return None, ()


def _read(files, channels, sizes):
    sources = {"": [file for _ in sizes for file in files]}
    resized = np.array([size for size in sizes for _ in files])
    facts = loading.check_files(sources, {"": channels})
    return list(loading.decode_all({"": loading.ImageFiles("", sources[""], facts[""], resized, channels)})[""])


def _drawn(domain, channels, sizes):
    scenes = [stripes.random_scene(np.random.default_rng([3, i])) for i in range(COMPARED)]
    animal = "horse" if domain == "A" else "zebra"
    bands = np.arange(channels) % 3
    whole = [(stripes.draw(scene, animal, max(size)), size) for size in sizes for scene in scenes]
    return [picture[: size[0], : size[1], bands] for picture, size in whole]


def _difference(run, generator, compared, uint8):
    differences = []
    for picture in compared:
        x = picture[None] / np.float32(127.5) - 1
        expected = generator(x, training=False).numpy()
        translated, dtype = run(picture[None] if uint8 else x), np.uint8 if uint8 else np.float32
        if (translated.shape, translated.dtype) != (expected.shape, dtype):
            raise ExportError(
                f"a picture became {translated.dtype} {translated.shape}, expected {np.dtype(dtype)} {expected.shape}"
            )
        expected = (expected + 1) * 127.5 if uint8 else expected  # not rounded, so that it matters how the file rounds
        differences.append(np.abs(translated.astype(np.float64) - expected).max())
    return float(np.max(differences))  # NaN if one of them is


def _put(made, out):
    """Moves what was made to its place. What was there goes with the folder that `made` is in."""
    old = made.with_name(".old")
    if os.path.lexists(out) and (out.is_dir() or made.is_dir()):  # which can't be replaced in one go
        os.rename(out, old)
    try:
        os.replace(made, out)
    except OSError:
        if os.path.lexists(old):
            os.rename(old, out)
        raise


def _function(model):
    """(tf.function from {INPUT: tensor} to {OUTPUT: tensor}, its input's signature)."""
    signature = [tf.TensorSpec(model.inputs[0].shape, model.inputs[0].dtype, INPUT)]
    translate = tf.function(lambda picture: {OUTPUT: model(picture, training=False)}, signature, autograph=False)
    return translate, signature


def _write_savedmodel(model, path, float16):
    module = tf.Module()
    module.__call__, _ = _function(model)
    module.weights = module.__call__.get_concrete_function().variables
    tf.saved_model.save(module, str(path), signatures=module.__call__)


def _load_savedmodel(path):
    translate = tf.saved_model.load(str(path))
    return lambda x: translate(tf.constant(x))[OUTPUT].numpy()


def _write_keras(model, path, float16):
    model.save(path)


def _load_keras(path):
    model = tf.keras.models.load_model(path)
    return lambda x: model(x, training=False).numpy()


def _write_onnx(model, path, float16):
    from tf2onnx import convert, optimizer

    # It sometimes loses the last operation of networks to one channel (tf2onnx 1.17, 2 times of 12).
    optimizer._optimizers.pop("reshape_optimizer", None)
    onnx, _ = convert.from_function(*_function(model), opset=OPSET)
    for value in (*onnx.graph.input, *onnx.graph.output):
        for dimension, name in zip(value.type.tensor_type.shape.dim, "NHW"):
            if not dimension.HasField("dim_value"):
                dimension.dim_param = name
    path.write_bytes(onnx.SerializeToString())


def _load_onnx(path):
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return lambda x: session.run([OUTPUT], {INPUT: x})[0]


def _write_tflite(model, path, float16):
    folder = path.with_name(".saved_model")
    _write_savedmodel(model, folder, float16)
    converter = tf.lite.TFLiteConverter.from_saved_model(str(folder))
    if float16:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.target_spec.supported_types = [tf.float16]
    path.write_bytes(converter.convert())


def _load_tflite(path):
    translate = tf.lite.Interpreter(str(path)).get_signature_runner()
    return lambda x: translate(**{INPUT: x})[OUTPUT]


FORMATS = {
    "savedmodel": Format(_write_savedmodel, _load_savedmodel),
    "keras": Format(_write_keras, _load_keras),
    "onnx": Format(_write_onnx, _load_onnx, ("tf2onnx", "onnx", "onnxruntime")),
    "tflite": Format(_write_tflite, _load_tflite),
}
