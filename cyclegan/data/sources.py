"""Where two domains come from: TensorFlow Datasets, a folder, or the embedded set; decoded now or when asked for.

Everything that can be wrong with a data set is found here, before training starts; but for the pixels of what is decoded later.
"""

import dataclasses
import os
import pathlib
import zlib
from typing import Optional

import numpy as np

from cyclegan.data import loading, memory
from cyclegan.data.cache import Memory, OnDemand, Store
from cyclegan.errors import UserError
from cyclegan.images import geometry

SPLITS = ("trainA", "trainB", "testA", "testB")
TEST = SPLITS[2:]
HELD_OUT = 0.05  # the share of each domain that is kept for testing when there is no test folder


@dataclasses.dataclass(frozen=True)
class Domains:
    """The four parts of a data set, those for training `None` where they were not asked for; `size`: (height, width) in pixels of
    the pictures that the networks see, which are cut from those of the parts; and `notes`: what the user should know about how
    they were made.
    """

    train_x: Optional[loading.ImageSet]
    train_y: Optional[loading.ImageSet]
    test_x: loading.ImageSet
    test_y: loading.ImageSet
    size: tuple
    notes: tuple = ()

    def fingerprint(self):
        """What makes a whole data set the same one at the next start, wherever it lies and however it is cached: a dict of texts.

        Names and their order have to be the same. The lengths of the files should be, see `RunDirectory.check_data`.
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


def load(config, folder=None, bars=False, say=print, share=0, splits=SPLITS):
    """Reads a data set as a configuration says: where it is, what its pictures go through, and where decoded ones are kept.

    Pictures are uint8 [0, 255], or uint16 [0, 65535] if any of the data set has 16 bits: the others are scaled by 257 then.

    Args:
        config: the `Config`.
        folder: where the file of --cache disk is made when the first picture is asked for.
        bars: show progress bars.
        say: is called with a text when that file can't hold more.
        share: 0 where this process needs all pictures. Otherwise it needs only a share, and none is decoded before it is asked
            for; the number says how many such processes there are on this machine, which share its memory too.
        splits: `SPLITS`, or `TEST` for the test pictures alone: no other picture is needed or looked at then.

    Raises:
        UserError: the data set is not there, has an empty domain, pictures that do not decode or whose sizes do not go with
            --preprocess; it names them. Unless they are decoded now, only those are found whose header or end is not that of a
            picture.
    """
    sources, names, notes = _find(config, bars, splits)
    files = _look(config, sources, bars)
    outcomes = np.concatenate([files[split].sizes for split in splits])
    sizes = np.concatenate([_sizes(files[split].looked) for split in splits])
    size = geometry.final_size(config.data, sizes, outcomes, [name for split in splits for name in names[split]])
    needed, cache = loading.bytes_needed(files), config.data.cache
    if cache == "auto":
        most = memory.free() / (4 * (share or 1)) if config.data.cache_gb is None else config.data.cache_gb * 1e9
        cache = "ram" if needed <= most else "disk"
    if cache == "ram" and share:
        loading.check_memory(files, share)
    if cache == "ram" and not share:
        images = loading.read(files, bars)
    else:
        store = Memory() if cache == "ram" else Store(folder, say) if cache == "disk" else None
        images = {
            split: OnDemand(part.pixels, part.shape, part.sizes, part.dtype, store) for split, part in files.items()
        }
        kept = {
            "ram": "kept in memory from then on",
            "disk": f"kept on disk from then on ({needed / 1e9:.1f} GB in {folder})",
            "none": "not kept (--cache none)",
        }[cache]
        notes += (f"Pictures are decoded when they are needed, and {kept}",)
    parts = {split: loading.ImageSet(images[split], names[split], files[split].looked["length"]) for split in splits}
    return Domains(*map(parts.get, SPLITS), size=size, notes=notes)


def is_prepared(dataset):
    """Whether a data set is one of TensorFlow Datasets, which have to be prepared on disk before they are read."""
    return dataset == "stripes" or dataset.startswith("cycle_gan/")


def _look(config, sources, bars):
    """The `pictures.ImageFiles` of each split, by what their headers say."""
    channels = {split: config.data.channels_x if split.endswith("A") else config.data.channels_y for split in sources}
    looked = loading.look(sources, channels, bars)
    dtype = np.uint16 if any(part["deep"].any() for part in looked.values()) else np.uint8
    return {
        split: loading.ImageFiles(
            split,
            sources[split],
            looked[split],
            geometry.resized_sizes(
                config.data, config.networks.multiple, _sizes(looked[split]), training=split.startswith("train")
            ),
            channels[split],
            dtype,
        )
        for split in sources
    }


def _sizes(looked):
    return np.stack([looked["height"], looked["width"]], axis=1)


def _find(config, bars, splits):
    """What there is, not decoded.

    Returns:
        (sources, names, notes): dicts by split of what `reader.decode` reads, and of lists of texts; and a tuple of texts.
    """
    dataset, most = config.data.dataset, config.data.max_dataset_size
    if is_prepared(dataset):
        from cyclegan.data import tfds_source

        if dataset == "stripes":
            resizes = config.data.preprocess == "resize_and_crop"
            test = config.data.image_shape if resizes else config.data.load_shape
            sides = dict(zip(SPLITS, (max(config.data.load_shape),) * 2 + (max(test),) * 2))
            builders = tfds_source.stripes_builders({split: sides[split] for split in splits}, config.data.data_dir)
        else:
            builders = dict.fromkeys(splits, tfds_source.cycle_gan_builder(dataset, config.data.data_dir))
        return (*tfds_source.read(builders, most, bars), ())
    folder = pathlib.Path(os.path.expanduser(dataset))
    if not folder.is_dir():
        if folder.exists():
            raise UserError(f"--dataset {dataset}: a file; expected a folder with trainA and trainB")
        from cyclegan.data import tfds_source

        raise UserError(
            f"--dataset {dataset}: no such folder; expected a folder with trainA and trainB, stripes, or cycle_gan/NAME"
            f" with NAME one of {', '.join(tfds_source.cycle_gan_names())}"
        )
    names, notes = _in_folder(folder, splits)
    names = {split: names[split][:most] for split in splits}
    return {split: [os.path.join(folder, name) for name in names[split]] for split in splits}, names, notes


def _in_folder(folder, splits):
    """(names, notes): the paths of the pictures of each split, relative to the folder, sorted; and a tuple of texts.

    Training pictures are found too where test pictures are held out of them.
    """
    notes, names = [], {}
    for domain in "AB":
        train, test = f"train{domain}", f"test{domain}"
        needed = train in splits or not (folder / test).is_dir()
        for split in (train, test):
            if (folder / split).is_dir() and (split == test or needed):
                names[split] = [os.path.join(split, name) for name in loading.find(folder / split)]
                if not names[split]:
                    raise UserError(
                        f"{folder / split}: no pictures; expected at least one of {' '.join(loading.ENDINGS)}"
                    )
        if needed and train not in names:
            absent = "" if train in splits else f", and no {test}"
            raise UserError(
                f"{folder / train}: no such folder{absent}; expected pictures of one domain in trainA, of the other in"
                " trainB"
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
    return names, tuple(notes)
