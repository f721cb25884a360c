#!/usr/bin/env python
"""Scores a run: `python scripts/evaluate.py runs/horse2zebra`.

Translates the test pictures and compares them with real ones: FID, KID, errors against the truth where there is one, cycle and
identity errors. Beside them stands what the pictures would score as they are. docs/evaluation.md says what the figures mean.
"""

import argparse
import importlib.metadata
import json
import math
import os
import pathlib
import platform
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from cyclegan import console
from cyclegan.errors import UserError, printable

SPLITS = {"x2y": "testB", "y2x": "testA"}  # where the real pictures of a direction's target domain are
FIGURES = {
    "FID": "FID",
    "KID": "KID",
    "KID_std": "KID, deviation over the subsets",
    "MAE": "error to the truth, grey levels of 255",
    "PSNR": "PSNR to the truth, dB",
    "SSIM": "SSIM to the truth",
    "cycle_MAE": "cycle error, grey levels of 255",
    "identity_MAE": "identity error, grey levels of 255",
}


def parser():
    """The command line."""
    made = argparse.ArgumentParser(
        description="Score a run: FID, KID, errors against the truth where there is one, cycle and identity errors.",
        epilog="docs/evaluation.md says what the figures mean, and what compares with what.",
    )
    made.add_argument("run", metavar="RUN", help="the run's folder")
    made.add_argument("--checkpoint", metavar="NAME", help="epoch_0100 or best-x2y, say (default: the newest)")
    made.add_argument("--direction", choices=tuple(SPLITS), help="only this one (default: both)")
    made.add_argument(
        "--features",
        default="inception",
        metavar="KIND",
        help="what FID and KID compare: inception, with weights that are downloaded once; a FILE of these; random: a fixed random"
        " network, for ranking checkpoints of one run (default: inception)",
    )
    made.add_argument("--dataset", help="where the run's data set is now (default: where it was)")
    made.add_argument("--data_dir", help="folder of prepared TensorFlow Datasets (default: the run's)")
    made.add_argument(
        "--real",
        metavar="DIR",
        help="real pictures to compare with: a folder with testA and testB; or, with --direction, one of pictures of its target"
        " domain (default: the run's test pictures)",
    )
    made.add_argument(
        "--paired",
        action="store_true",
        help="test pictures of the same name show the same, so the truth is known (stripes: always)",
    )
    made.add_argument("--max_images", type=int, metavar="N", help="use the first N test pictures of each domain only")
    made.add_argument("--batch_size", type=int, default=4, metavar="N", help="pictures at a time (default: 4)")
    made.add_argument("--seed", type=int, default=0, help="of the subsets of KID (default: 0)")
    made.add_argument("--json", metavar="FILE", help="write everything to this file too; it is replaced")
    return made


def check(arguments):
    """Raises UserError: a value can't work."""
    for name, least in (("max_images", 2), ("batch_size", 1), ("seed", 0)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UserError(f"--{name} {value}: expected at least {least}")
    if arguments.json and os.path.isdir(os.path.expanduser(arguments.json)):
        raise UserError(f"--json {arguments.json}: a folder; expected a file")
    if arguments.json and not os.access(pathlib.Path(arguments.json).expanduser().parent, os.W_OK):
        raise UserError(f"--json {arguments.json}: expected a file in a folder that can be written to")
    folder = arguments.real
    if folder is None:
        return
    if not os.path.isdir(os.path.expanduser(folder)):
        raise UserError(f"--real {folder}: no such folder; expected one with testA and testB, or one of pictures")
    wanted = [SPLITS[direction] for direction in _directions(arguments)]
    if not arguments.direction and not all(
        os.path.isdir(os.path.join(os.path.expanduser(folder), name)) for name in wanted
    ):
        raise UserError(
            f"--real {folder}: has no testA and testB, so it is pictures of one domain; expected --direction x2y if that is Y, or"
            " --direction y2x if it is X"
        )


def _directions(arguments):
    return (arguments.direction,) if arguments.direction else tuple(SPLITS)


def evaluate(arguments):
    """Scores a run as the command line says. Returns all there is to say, as JSON has it.

    Raises:
        UserError: the run, the checkpoint, the pictures or the features are not there, or do not fit.
    """
    check(arguments)
    with console.start():
        import tensorflow as tf

        from cyclegan.data import sources
        from cyclegan.evaluation import features
        from cyclegan.evaluation.evaluator import Evaluator
        from cyclegan.inference.restore import restore

    found = restore(arguments.run, arguments.checkpoint)
    config = found.config
    extractor = features.extractor(
        arguments.features, [found.channels(direction)[1] for direction in _directions(arguments)]
    )
    changes = {name: getattr(arguments, name) for name in ("dataset", "data_dir") if getattr(arguments, name)}
    if arguments.max_images:
        changes["max_dataset_size"] = arguments.max_images
    moved = config.replace(cache="none", **changes)
    domains = sources.load(moved, bars=True, say=warn, splits=sources.TEST)
    dataset = arguments.dataset or config.dataset
    paired = dataset == "stripes" or arguments.paired
    if paired and dataset != "stripes":
        check_pairs(domains.test_x.names, domains.test_y.names)
    real = {}
    for direction in _directions(arguments) if arguments.real else ():
        folder = pathlib.Path(arguments.real).expanduser()
        part = folder / SPLITS[direction]
        channels = found.channels(direction)[1]
        real[direction] = read_folder(config, part if part.is_dir() else folder, channels, domains.size)
    evaluation = Evaluator(
        *(lambda pictures, network=network: network(pictures, training=False) for network in (found.G, found.F)),
        domains.test_x.images,
        domains.test_y.images,
        domains.size,
        extractor,
        paired,
        real,
        arguments.seed,
        arguments.batch_size,
        bars=True,
    )
    return {
        "run": str(found.path),
        "checkpoint": found.checkpoint.name,
        "epoch": found.progress.epoch,
        "step": found.progress.step,
        "versions": {
            "python": platform.python_version(),
            "tensorflow": tf.__version__,
            **{name: importlib.metadata.version(name) for name in ("keras", "numpy", "pillow")},
        },
        "directions": {
            direction: {
                **scored(evaluation, direction, domains.size),
                "protocol": {
                    "dataset": dataset,
                    "real_from": arguments.real or "its test pictures",
                    "max_images": arguments.max_images,
                    "preprocess": config.preprocess,
                    **evaluation.protocol(direction),
                },
            }
            for direction in _directions(arguments)
        },
    }


def scored(evaluation, direction, size):
    """{"scores", "untranslated"}: what an `Evaluator` says of a direction. `size`: (height, width) of the pictures in pixels.

    Raises:
        UserError: the device has not enough memory.
    """
    import tensorflow as tf

    try:
        return {"scores": evaluation.scores(direction), "untranslated": evaluation.untranslated(direction)}
    except tf.errors.ResourceExhaustedError:
        raise UserError(
            f"the device has not enough memory for {evaluation.batch_size} pictures of {size[1]} x {size[0]} pixels at a time;"
            " expected more that is free, or a smaller --batch_size"
        ) from None


def check_pairs(names_x, names_y):
    """Raises UserError: two lists of files ("testA/3.png") do not have the same names, but for the folder and the ending."""
    x, y = (
        [str(pathlib.PurePath(*pathlib.PurePath(name).parts[1:]).with_suffix("")) for name in names]
        for names in (names_x, names_y)
    )
    if x != y:
        other = sorted(set(x) ^ set(y)) or [a for a, b in zip(x, y) if a != b]
        raise UserError(
            f"--paired: the test pictures of X ({len(x)}) and Y ({len(y)}) do not have the same names, {other[0]} for one;"
            " expected a picture of Y for each of X, called the same"
        )


def read_folder(config, folder, channels, size):
    """The real pictures in a folder, resized as the run's test pictures are; looks like an array to those who take one at a time.

    Args:
        config: the run's `Config`.
        channels: of the pictures.
        size: (height, width) in pixels of the pictures that the run's networks see.

    Raises:
        UserError: there are none, some do not decode, or they do not come out in that size.
    """
    import numpy as np

    from cyclegan.data import loading
    from cyclegan.data.cache import OnDemand
    from cyclegan.images import geometry

    paths = [os.path.join(folder, name) for name in loading.find(folder)]
    if not paths:
        raise UserError(f"--real {folder}: no pictures; expected at least 2 of {' '.join(loading.ENDINGS)}")
    looked = loading.look({"real": paths}, {"real": channels})["real"]
    sizes = np.stack([looked["height"], looked["width"]], axis=1)
    outcomes = geometry.resized_sizes(config.data, config.networks.multiple, sizes, training=False)
    got = geometry.final_size(config.data, sizes, outcomes, paths)
    if tuple(got) != tuple(size):
        raise UserError(
            f"--real {folder}: the images come out at {geometry.format_size(got)}; expected the run's"
            f" {geometry.format_size(size)}: resize them"
        )
    dtype = np.uint16 if looked["deep"].any() else np.uint8
    files = loading.ImageFiles("real", paths, looked, outcomes, channels, dtype)
    return OnDemand(files.pixels, files.shape, files.sizes, files.dtype)


def table(result):
    """The lines that are printed of what `evaluate` returns."""
    yield f"{result['run']}, {result['checkpoint']}: {result['epoch']} epochs, step {result['step']}"
    for direction, part in result["directions"].items():
        source, target = direction.upper().split("2")
        yield ""
        yield f"{f'{source} -> {target}':40} {'translated':>12} {'as they are':>12}"
        for name, text in FIGURES.items():
            if name in part["scores"]:
                values = [part[kind].get(name) for kind in ("scores", "untranslated")]
                yield f"{text:40} " + " ".join(f"{'' if v is None else f'{v:.5g}':>12}" for v in values).rstrip()
        how = part["protocol"]
        some = f" (the first {how['max_images']} at most)" if how["max_images"] else ""
        yield f"{how['translated']} test pictures of {source}{some} of {how['dataset']}, translated;"
        yield f"{how['real']} real ones of {target} from {how['real_from']}; {how['width']} x {how['height']} pixels"
        yield f"{how['rounding']}; KID: {how['KID']}, seed {how['seed']}"
    yield ""
    yield f"Pictures: --preprocess {how['preprocess']} (resized by Pillow, bicubic, antialiased)"
    yield f"Features: {how['features']}"
    yield "Less is better but for PSNR and SSIM"


def warn(text):
    """Prints what a user should not miss."""
    print(f"Warning: {printable(text)}", file=sys.stderr, flush=True)


def main(argv=None):
    """Scores, prints the table, and returns what the JSON file holds.

    Raises:
        UserError: that can't be.
    """
    arguments = parser().parse_args(argv)
    result = evaluate(arguments)
    print(*map(printable, table(result)), sep="\n", flush=True)
    if arguments.json:
        try:
            text = json.dumps(_finite(result), indent=2, allow_nan=False)
            pathlib.Path(arguments.json).expanduser().write_text(text + "\n", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"--json {arguments.json}: {error}; expected a file in a folder that can be written to"
            ) from error
    return result


def _finite(value):
    """`value` with `None` where JSON has no number: the PSNR of pictures that equal the truth."""
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


if __name__ == "__main__":
    sys.exit(console.run(main, "stopped; nothing was written"))
