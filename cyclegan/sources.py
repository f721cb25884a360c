"""Where two domains come from: TensorFlow Datasets, a folder, or the embedded set; decoded once into uint8.

Everything that can be wrong with a data set is found here, before training starts.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import sys
import threading
import zlib

import numpy as np
import requests  # TFDS downloads with it, so the same proxies and certificates are tried
import tensorflow as tf
import tensorflow_datasets as tfds
import tqdm
from absl import logging
from PIL import Image
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from cyclegan import pictures, stripes
from cyclegan.errors import UserError

SPLITS = ("trainA", "trainB", "testA", "testB")
HELD_OUT = 0.05  # the share of each domain that is kept for testing when there is no test folder
ANSWER_SECONDS = 3  # how long the host of a data set may take to answer

logging.set_verbosity(logging.ERROR)  # TFDS warns of a data set that is not prepared yet; we say it better


@dataclasses.dataclass(frozen=True)
class Domains:
    """The four parts of a data set, and `notes`: what the user should know about how they were made."""

    train_x: pictures.Pictures
    train_y: pictures.Pictures
    test_x: pictures.Pictures
    test_y: pictures.Pictures
    notes: tuple = ()

    def fingerprint(self):
        """What makes this data set the same one at the next start, wherever it lies: a dict of texts."""
        return {
            split: f"{len(part)} pictures ({zlib.crc32(part.images):08x})"
            for split, part in zip(SPLITS, (self.train_x, self.train_y, self.test_x, self.test_y))
        }


def load(dataset, image_size, load_size, data_dir=None, bars=False):
    """Reads a data set. Training pictures become load_size x load_size pixels, test pictures image_size x image_size.

    Args:
        dataset: "stripes", "cycle_gan/NAME" of TensorFlow Datasets, or the path of a folder with trainA, trainB and,
            optionally, testA and testB.
        data_dir: where TensorFlow Datasets keeps what it has prepared; `None` for its own default.
        bars: show progress bars.

    Raises:
        UserError: the data set is not there, has an empty domain, or has pictures that do not decode; it names them.
    """
    sizes = dict(zip(SPLITS, (load_size, load_size, image_size, image_size)))
    if dataset == "stripes":
        builders = {size: stripes.builder(size, data_dir) for size in {load_size, image_size}}
        return _from_builders({split: builders[size] for split, size in sizes.items()}, sizes, bars)
    if dataset.startswith("cycle_gan/"):
        builder = _cycle_gan(dataset, data_dir)
        return _from_builders(dict.fromkeys(SPLITS, builder), sizes, bars)
    folder = pathlib.Path(os.path.expanduser(dataset))
    if not folder.is_dir():
        if folder.exists():
            raise UserError(f"--dataset {dataset}: a file; expected a folder with trainA and trainB")
        known = ", ".join(config.name for config in tfds.builder_cls("cycle_gan").BUILDER_CONFIGS)
        raise UserError(
            f"--dataset {dataset}: no such folder; expected a folder with trainA and trainB, stripes, or cycle_gan/NAME"
            f" with NAME one of {known}"
        )
    return _from_folder(folder, sizes, bars)


def _from_folder(folder, sizes, bars):
    notes, files = [], {}
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        for name in (train, test):
            if (folder / name).is_dir():
                files[name] = [folder / name / path for path in pictures.find(folder / name)]
                if not files[name]:
                    raise UserError(
                        f"{folder / name}: no pictures; expected at least one of {' '.join(pictures.ENDINGS)}"
                    )
        if train not in files:
            raise UserError(
                f"{folder / train}: no such folder; expected pictures of one domain in trainA, of the other in trainB"
            )
        if test not in files:
            count = max(1, round(HELD_OUT * len(files[train])))
            if len(files[train]) < 2:
                raise UserError(f"{folder / train}: 1 picture and no {test}; expected 2, one of them to test on")
            files[train], files[test] = files[train][:-count], files[train][-count:]
            whole = count + len(files[train])
            notes.append(
                f"No {test} in {folder}: the last {count} of {whole} pictures of {train} are held out for testing"
            )
    images = pictures.read({split: files[split] for split in SPLITS}, sizes, bars)
    parts = [
        pictures.Pictures(images[split], [os.fspath(path.relative_to(folder)) for path in files[split]])
        for split in SPLITS
    ]
    return Domains(*parts, notes=tuple(notes))


def _cycle_gan(dataset, data_dir):
    """The builder of a data set of TFDS's cycle_gan; not prepared yet only where its host answers."""
    names = [config.name for config in tfds.builder_cls("cycle_gan").BUILDER_CONFIGS]
    name = dataset[len("cycle_gan/") :]
    if name not in names:
        raise UserError(f"--dataset {dataset}: expected cycle_gan/NAME with NAME one of {', '.join(names)}")
    builder = tfds.builder(dataset, data_dir=data_dir)
    url = _download_url(builder, name)
    if not (builder.data_path / "dataset_info.json").exists() and url.startswith("http") and not _answers(url):
        raise UserError(
            f"{dataset} is not prepared in {builder.data_path.parent.parent.parent} and its host ({url.split('/')[2]}) does not"
            f" answer: expected a network; or name the folder that holds it with --data_dir, train on a folder of your own"
            f" pictures with --dataset FOLDER, or on the embedded ones with --dataset stripes"
        )
    return builder


def _download_url(builder, name):
    return str(sys.modules[type(builder).__module__]._DL_URLS[name])


def _answers(url):
    """Whether an HTTP server answers within `ANSWER_SECONDS` (a name that hangs in the resolver counts as no)."""
    answered = []

    def ask():
        with contextlib.suppress(requests.exceptions.RequestException):
            answered.append(requests.head(url, timeout=ANSWER_SECONDS, allow_redirects=False).status_code < 500)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return any(answered)


def _from_builders(builders, sizes, bars):
    """Reads the four splits, each from its TFDS builder, which is prepared first."""
    counts = {}
    for split, builder in builders.items():
        _prepare(builder, bars)
        counts[split] = builder.info.splits[split].num_examples
        if not counts[split]:
            raise UserError(f"{builder.info.full_name}: {split} is empty; expected at least one picture")
    pictures.check_memory(counts, sizes)
    parts = []
    for split, count in counts.items():
        builder = builders[split]
        images = np.empty((count, sizes[split], sizes[split], 3), np.uint8)
        examples = tfds.as_numpy(builder.as_dataset(split, shuffle_files=False))
        bar = tqdm.tqdm(examples, f"Reading {split}", count, unit=" images", disable=not bars or None, leave=False)
        try:
            for i, example in enumerate(bar):
                images[i] = pictures.resize(Image.fromarray(example["image"]), sizes[split])
        except tf.errors.OpError as error:
            raise UserError(
                f"{builder.data_path}: {split} is damaged ({str(error).splitlines()[0]}): remove that folder and start again"
            ) from error
        parts.append(pictures.Pictures(images, [f"{builder.info.full_name}/{split}[{i}]" for i in range(count)]))
    return Domains(*parts)


def _prepare(builder, bars):
    # The embedded pictures are drawn in seconds: TFDS's many bars would only stand in the way.
    quiet = not bars or isinstance(builder, stripes.Stripes)
    nowhere = io.StringIO()
    try:
        with contextlib.ExitStack() as stack:
            if quiet:
                stack.enter_context(contextlib.redirect_stdout(nowhere))
                stack.enter_context(contextlib.redirect_stderr(nowhere))
            builder.download_and_prepare()
    except (OSError, tf.errors.OpError, tfds.download.DownloadError, NonMatchingChecksumError) as error:
        raise UserError(
            f"TensorFlow Datasets could not prepare {builder.info.full_name} in {builder.data_path}:"
            f" {type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}. Expected a folder that can be"
            " written to (--data_dir), with room, and a data set that can be fetched"
        ) from error
