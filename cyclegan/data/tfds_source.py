"""Datasets of TensorFlow Datasets: prepared on disk, and read as encoded images.

Import this module only where such a dataset is used: TensorFlow Datasets takes seconds to start.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import logging
import os
import pathlib
import shutil
import sys
from collections.abc import Iterator, Sequence

import requests  # TFDS downloads with it, so this respects the same proxies and certificates
import tensorflow as tf
import tensorflow_datasets as tfds

from cyclegan import terminal
from cyclegan.errors import UserError, first_line

ANSWER_SECONDS = 3  # how long the host of a dataset may take to answer
FAMILY = "cycle_gan"  # TFDS's name for the datasets of the CycleGAN paper


def cycle_gan_names() -> list[str]:
    """Return the NAMEs of all datasets cycle_gan/NAME."""
    return [config.name for config in tfds.builder_cls(FAMILY).BUILDER_CONFIGS]


def cycle_gan_builder(dataset: str, folder: pathlib.Path) -> tfds.core.DatasetBuilder:
    """Return the builder of a dataset cycle_gan/NAME, which is prepared or whose host answers."""
    name = dataset[len(f"{FAMILY}/") :]
    if name not in cycle_gan_names():
        raise UserError(f"--dataset {dataset}: expected {FAMILY}/NAME with NAME one of {', '.join(cycle_gan_names())}")
    # TFDS warns of a dataset that is not prepared; the errors here name the fix.
    logging.getLogger("absl").setLevel(logging.ERROR)
    builder = tfds.builder(dataset, data_dir=os.fspath(folder))
    url = next((url for url in builder.url_infos if url.endswith(f"/{name}.zip")), None)
    if url and not _is_prepared(builder) and not _host_answers(url):  # TFDS itself would try for minutes
        raise UserError(
            f"{dataset} is not prepared in {folder}, and its host ({url.split('/')[2]})"
            " does not answer; expected a connection to it. Or name the folder that holds the dataset with --data_dir,"
            " or train on your own images with --dataset FOLDER, or on the embedded ones with --dataset stripes"
        )
    return builder


def read(
    builder: tfds.core.DatasetBuilder, splits: Sequence[str], max_images: int | None = None, bars: bool = False
) -> tuple[dict[str, list[bytes]], dict[str, list[str]]]:
    """Read the encoded images of some splits, all or the first `max_images`; prepare the dataset if it is not prepared.

    Returns:
        The contents of the image files in their order, and the names of the images, by split.
    """
    _prepare(builder, bars)
    options = tf.data.Options()
    options.autotune.enabled = False  # an iterator with autotuning can take a minute to end
    # A cycle of one file keeps the order of the files.
    config = tfds.ReadConfig(options=options, try_autocache=False, interleave_cycle_length=1)
    images = {}
    for split in splits:
        part = f"{split}[:{max_images}]" if max_images else split
        try:
            examples = builder.as_dataset(part, decoders={"image": tfds.decode.SkipDecoding()}, read_config=config)
            images[split] = [example["image"] for example in examples.as_numpy_iterator()]
        except tf.errors.OpError as error:  # TFDS compares checksums and the number of images
            raise UserError(
                f"{builder.data_path}: {split} is damaged or cannot be read ({first_line(error)}); expected the files"
                " that TFDS wrote, readable: otherwise, remove that folder and start again"
            ) from error
    full_name = builder.info.full_name
    return images, {split: [f"{full_name}/{split}[{i}]" for i in range(len(part))] for split, part in images.items()}


def _prepare(builder: tfds.core.DatasetBuilder, bars: bool) -> None:
    # The error of a file that differs from what TFDS expects has no public name, nor a public base.
    from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

    nowhere = sys.stdout if bars else io.StringIO()
    try:
        if _is_prepared(builder):
            return
        with (
            _locked(builder),
            contextlib.redirect_stdout(nowhere),
            contextlib.redirect_stderr(sys.stderr if bars and sys.stderr.isatty() else nowhere),
        ):
            builder.download_and_prepare()  # returns at once if another process has prepared it meanwhile
            builder.info.read_from_directory(builder.data_path)
    except (OSError, tf.errors.OpError, tfds.download.DownloadError, NonMatchingChecksumError) as error:
        raise UserError(
            f"TensorFlow Datasets could not prepare {builder.info.full_name} in {builder.data_path}:"
            f" {type(error).__name__}: {first_line(error)}. Expected a folder that can be"
            " written to (--data_dir), with free space, and a dataset that can be downloaded"
        ) from error


def _is_prepared(builder: tfds.core.DatasetBuilder) -> bool:
    return (builder.data_path / "dataset_info.json").exists()


@contextlib.contextmanager
def _locked(builder: tfds.core.DatasetBuilder) -> Iterator[None]:
    """Let one process at a time prepare a dataset, and remove what killed ones have left."""
    folder = builder.data_path.parent
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "a") as lock:
        waits = terminal.phase(f"Waiting for another process that prepares {folder}", if_slow=True)
        with waits, contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(lock, fcntl.LOCK_EX)
            for path in folder.glob("incomplete.*"):
                shutil.rmtree(path, ignore_errors=True)
        yield


def _host_answers(url: str) -> bool:
    """Return whether an HTTP server answers within `ANSWER_SECONDS`."""
    with contextlib.suppress(requests.exceptions.RequestException):
        return requests.head(url, timeout=ANSWER_SECONDS, allow_redirects=False).status_code < 500
    return False
