"""Where two domains come from: TensorFlow Datasets, a folder, or the embedded set; decoded into uint8, now or when asked for.

Everything that can be wrong with a data set is found here, before training starts; but for the pixels of what is decoded later.
"""

import contextlib
import dataclasses
import io
import os
import pathlib
import sys
import threading
import zlib

import requests  # TFDS downloads with it, so the same proxies and certificates are tried
import tensorflow as tf
import tensorflow_datasets as tfds
from absl import logging
from tensorflow_datasets.core.download.download_manager import NonMatchingChecksumError

from cyclegan import pictures, stripes
from cyclegan.cache import OnDemand, Store
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
        """What makes this data set the same one at the next start, wherever it lies and however it is cached: a dict of texts.

        Names and their order have to be the same. The lengths of the files should be, see `RunFolder.check_data`.
        """
        parts = dict(zip(SPLITS, (self.train_x, self.train_y, self.test_x, self.test_y)))
        names = {split: "\0".join(part.names).encode(errors="surrogateescape") for split, part in parts.items()}
        return {
            **{split: f"{len(part)} pictures ({zlib.crc32(names[split]):08x})" for split, part in parts.items()},
            **{
                f"{split} bytes": f"{part.lengths.sum()} bytes ({zlib.crc32(part.lengths.astype('<i8')):08x})"
                for split, part in parts.items()
            },
        }


def load(dataset, image_size, load_size, data_dir=None, bars=False, cache="ram", cache_gb=None, folder=None, say=print):
    """Reads a data set. Training pictures become load_size x load_size pixels, test pictures image_size x image_size.

    Args:
        dataset: "stripes", "cycle_gan/NAME" of TensorFlow Datasets, or the path of a folder with trainA, trainB and,
            optionally, testA and testB.
        data_dir: where TensorFlow Datasets keeps what it has prepared; `None` for its own default.
        bars: show progress bars.
        cache: "ram" decodes all pictures now; "disk" each when it is first asked for, and keeps it in a file; "none" each time it
            is asked for; "auto" is "ram" for up to `cache_gb`, and "disk" above.
        cache_gb: gigabytes of decoded pictures; `None` for a quarter of the memory that is free.
        folder: where the file of "disk" is made when the first picture is asked for.
        say: is called with a text when that file can't hold more.

    Raises:
        UserError: the data set is not there, has an empty domain, or has pictures that do not decode; it names them. Unless they
            are decoded now, only those are found whose header or end is not that of a picture.
    """
    sizes = dict(zip(SPLITS, (load_size, load_size, image_size, image_size)))
    files, names, notes = _find(dataset, sizes, data_dir, bars)
    counts = {split: len(part) for split, part in files.items()}
    needed = pictures.bytes_needed(counts, sizes)
    if cache == "auto":
        most = pictures.free_memory() / 4 if cache_gb is None else cache_gb * 1e9
        cache = "ram" if needed <= most else "disk"
    if cache == "ram":
        images, lengths = pictures.read(files, sizes, bars)
    else:
        files = {split: list(part) for split, part in files.items()}
        lengths = pictures.look(files, bars)
        store = Store(folder, say) if cache == "disk" else None
        images = {split: _on_demand(files[split], split, sizes[split], store) for split in SPLITS}
        kept = f"kept on disk from then on ({needed / 1e9:.1f} GB in {folder})" if store else "not kept (--cache none)"
        notes += (f"Pictures are decoded when they are needed, and {kept}",)
    return Domains(*(pictures.Pictures(images[split], names[split], lengths[split]) for split in SPLITS), notes=notes)


def _on_demand(files, split, size, store):
    def decode(i):
        return pictures.pixels(files[i], pictures.name_of(files[i], split, i), size)

    return OnDemand(decode, len(files), size, store)


def _find(dataset, sizes, data_dir, bars):
    """What there is, not decoded.

    Returns:
        (files, names, notes): dicts by split of what `pictures.read` reads, and of lists of texts; and a tuple of texts.
    """
    if dataset == "stripes":
        builders = {size: stripes.builder(size, data_dir) for size in set(sizes.values())}
        return _from_builders({split: builders[size] for split, size in sizes.items()}, bars)
    if dataset.startswith("cycle_gan/"):
        return _from_builders(dict.fromkeys(SPLITS, _cycle_gan(dataset, data_dir)), bars)
    folder = pathlib.Path(os.path.expanduser(dataset))
    if not folder.is_dir():
        if folder.exists():
            raise UserError(f"--dataset {dataset}: a file; expected a folder with trainA and trainB")
        known = ", ".join(config.name for config in tfds.builder_cls("cycle_gan").BUILDER_CONFIGS)
        raise UserError(
            f"--dataset {dataset}: no such folder; expected a folder with trainA and trainB, stripes, or cycle_gan/NAME"
            f" with NAME one of {known}"
        )
    return _from_folder(folder)


def _from_folder(folder):
    notes, names = [], {}
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        for split in (train, test):
            if (folder / split).is_dir():
                names[split] = [os.path.join(split, name) for name in pictures.find(folder / split)]
                if not names[split]:
                    raise UserError(
                        f"{folder / split}: no pictures; expected at least one of {' '.join(pictures.ENDINGS)}"
                    )
        if train not in names:
            raise UserError(
                f"{folder / train}: no such folder; expected pictures of one domain in trainA, of the other in trainB"
            )
        if test not in names:
            whole = len(names[train])
            count = max(1, round(HELD_OUT * whole))
            if whole < 2:
                raise UserError(f"{folder / train}: 1 picture and no {test}; expected 2, one of them to test on")
            names[train], names[test] = names[train][:-count], names[train][-count:]
            notes.append(
                f"No {test} in {folder}: the last {count} of {whole} pictures of {train} are held out for testing"
            )
    files = {split: [os.path.join(folder, name) for name in names[split]] for split in SPLITS}
    return files, names, tuple(notes)


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


def _from_builders(builders, bars):
    """The four splits, each from its TFDS builder, which is prepared first."""
    files, names = {}, {}
    for split, builder in builders.items():
        _prepare(builder, bars)
        files[split] = Encoded(builder, split)
        if not len(files[split]):
            raise UserError(f"{builder.info.full_name}: {split} is empty; expected at least one picture")
        names[split] = [f"{builder.info.full_name}/{split}[{i}]" for i in range(len(files[split]))]
    return files, names, ()


class Encoded:
    """The pictures of a split of a prepared TFDS builder, as the bytes of their files; one after the other only."""

    def __init__(self, builder, split):
        self._builder, self._split = builder, split

    def __len__(self):
        return self._builder.info.splits[self._split].num_examples

    def __iter__(self):
        encoded = {"image": tfds.decode.SkipDecoding()}
        try:
            examples = self._builder.as_dataset(self._split, shuffle_files=False, decoders=encoded)
            for example in tfds.as_numpy(examples):
                yield example["image"]
        except tf.errors.OpError as error:
            raise UserError(
                f"{self._builder.data_path}: {self._split} is damaged ({str(error).splitlines()[0]}): remove that folder and"
                " start again"
            ) from error


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
