"""Data sets of TensorFlow Datasets, the embedded one among them: prepared, and where the files of their pictures lie.

Only imported where one is asked for: TensorFlow Datasets takes its time to start.
"""

import contextlib
import io
import itertools
import os
import sys
import threading

import requests  # TFDS downloads with it, so the same proxies and certificates are tried
import tensorflow as tf
import tensorflow_datasets as tfds
from absl import logging
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from cyclegan.data import records, stripes
from cyclegan.errors import UserError

ANSWER_SECONDS = 3  # how long the host of a data set may take to answer

logging.set_verbosity(logging.ERROR)  # TFDS warns of a data set that is not prepared yet; we say it better


def names():
    """What may follow cycle_gan/, a list of texts."""
    return [config.name for config in tfds.builder_cls("cycle_gan").BUILDER_CONFIGS]


def drawn(sizes, data_dir):
    """The builders of the embedded data set by split, for a dict of the pictures' sides in pixels."""
    builders = {size: stripes.builder(size, data_dir) for size in set(sizes.values())}
    return {split: builders[size] for split, size in sizes.items()}


def cycle_gan(dataset, data_dir):
    """The builder of a data set of TFDS's cycle_gan; not prepared yet only where its host answers.

    Raises:
        UserError: there is no such data set, or its host does not answer.
    """
    name = dataset[len("cycle_gan/") :]
    if name not in names():
        raise UserError(f"--dataset {dataset}: expected cycle_gan/NAME with NAME one of {', '.join(names())}")
    builder = tfds.builder(dataset, data_dir=data_dir)
    url = str(sys.modules[type(builder).__module__]._DL_URLS[name])
    if not (builder.data_path / "dataset_info.json").exists() and url.startswith("http") and not _answers(url):
        raise UserError(
            f"{dataset} is not prepared in {builder.data_path.parent.parent.parent} and its host ({url.split('/')[2]}) does not"
            f" answer: expected a network; or name the folder that holds it with --data_dir, train on a folder of your own"
            f" pictures with --dataset FOLDER, or on the embedded ones with --dataset stripes"
        )
    return builder


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


def find(builders, most=None, bars=False, whole=True):
    """The pictures of all splits, each from its TFDS builder, which is prepared first.

    Args:
        builders: dict by split.
        most: only the first so many of each; `None` for all.
        bars: show TFDS's progress bars.
        whole: read all files once, and compare the checksums. Otherwise no picture is read.

    Returns:
        (sources, names): dicts by split of lists of `records.Stored`, and of what the pictures are called.

    Raises:
        UserError: a data set can't be prepared or read, is damaged, or has an empty split.
    """
    sources, names = {}, {}
    for split, builder in builders.items():
        if "://" in os.fspath(builder.data_path):
            raise UserError(
                f"{builder.data_path}: expected a folder of this machine, such as a mounted one (--data_dir)"
            )
        _prepare(builder, bars)
        sources[split] = _stored(builder, split, most, whole)
        if not sources[split]:
            raise UserError(f"{builder.info.full_name}: {split} is empty; expected at least one picture")
        names[split] = [f"{builder.info.full_name}/{split}[{i}]" for i in range(len(sources[split]))]
    return sources, names


def _stored(builder, split, most, whole):
    info, found, kind = builder.info.splits[split], [], builder.info.file_format
    if kind and kind.value != "tfrecord":
        raise UserError(
            f"{builder.data_path}: its files are of the format {kind.value}; expected tfrecord: remove that folder and start"
            " again, or name another with --data_dir"
        )
    wanted = min(most or info.num_examples, info.num_examples)
    try:
        for path, count in zip(map(os.fspath, info.filepaths), info.shard_lengths):
            expected = min(count, wanted - len(found))
            if whole and expected == count:
                tf.data.TFRecordDataset(path).reduce(0, lambda number, _: number + 1)
            part = list(itertools.islice(records.find(path, "image"), wanted - len(found)))
            if len(part) != expected:
                raise ValueError(f"{os.path.basename(path)} has {len(part)} records; expected {expected}")
            found += part
    except (ValueError, FileNotFoundError, tf.errors.OpError) as error:
        raise UserError(
            f"{builder.data_path}: {split} is damaged ({str(error).splitlines()[0]}): remove that folder and start again"
        ) from error
    except OSError as error:
        raise UserError(f"{builder.data_path}: {split} can't be read ({error}): expected files that can be") from error
    return found


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
