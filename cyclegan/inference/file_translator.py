"""Read, translate and write batches of files, in several threads."""

from __future__ import annotations

import dataclasses
import pathlib
import queue
from collections.abc import Sequence
from types import TracebackType
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from cyclegan.data import loading
from cyclegan.errors import MissingPackageError, printable
from cyclegan.images import dicom_writer, reader, writer
from cyclegan.images.image import DecodedImage
from cyclegan.images.value_range import image_to_values
from cyclegan.inference import conversions, page_images
from cyclegan.inference.conversions import Size
from cyclegan.inference.file_batches import Inspected
from cyclegan.inference.file_plan import FileTask
from cyclegan.inference.model import Model
from cyclegan.run import html_report

OPPOSITE = {"x2y": "y2x", "y2x": "x2y"}


@dataclasses.dataclass(frozen=True)
class Outcome:
    """Outcome of one file.

    Attributes:
        failed: Reason why the file was not translated; `None` if it was.
        unshown: Reason why a translated file is not on the page; `None` if there is none.
        item: Item of the file on the page.
        tiled: Whether the image was too large to be translated at once.
        cut: Whether the file has frames or pages after the first, which are not translated.
    """

    failed: str | None = None
    unshown: str | None = None
    item: html_report.Item | None = None
    tiled: bool = False
    cut: bool = False


class Translation(NamedTuple):
    """A translated image.

    Attributes:
        task: Its file.
        original: The image.
        output: Pixels of the translation.
        cycle: Pixels of the translation back if there is a page and a generator for it; otherwise `None`.
    """

    task: FileTask
    original: DecodedImage
    output: np.ndarray
    cycle: np.ndarray | None


class FileTranslator:
    """Translate files with models that several threads share.

    Args:
        models: A model for each device.
        direction: "x2y" or "y2x".
        size: (width, height) in pixels to resize images to first; `None` keeps their sizes.
        format: Format to write; `None` for the format of each target's name.
        page_folder: Folder of the page that shows the translations; `None` for no page.

    Attributes:
        max_pixels: Number of pixels that are translated at once.
    """

    def __init__(
        self,
        models: Sequence[Model],
        direction: str,
        size: Size | None,
        format: str | None,
        page_folder: pathlib.Path | None,
    ) -> None:
        self.max_pixels = models[0].tile ** 2
        self._direction, self._size, self._format = direction, size, format
        self._page_folder = page_folder
        self._ranges = models[0].value_ranges(direction)
        objective, checkpoint = models[0].config.objective.objective, models[0].checkpoint
        self._derivation = f"{objective} {direction}, {checkpoint.parent.parent.name}, {checkpoint.name}"
        self._network = f"{direction} of {checkpoint.resolve()}"
        self._channels = models[0].translator(direction).channels_in
        self._models: queue.Queue[Model] = queue.Queue()
        for model in models:
            self._models.put(model)

    def inspect(self, task: FileTask) -> Inspected:
        """Read the header of a file."""
        with _Catch(task) as caught:
            facts = reader.check(task.source, self._channels, bool(self._ranges[0]))
            height, width = self._size[::-1] if self._size else (facts.height, facts.width)
            return Inspected((height, width, facts.deep or any(self._ranges)), facts.height * facts.width, task)
        assert caught.reason is not None
        return Inspected(caught.reason, 0, task)

    def translate_batch(self, tasks: Sequence[FileTask]) -> list[Outcome]:
        """Read, translate and write files whose images have the same shape."""
        outcomes: dict[FileTask, Outcome] = {}
        originals: dict[FileTask, DecodedImage] = {}
        for task in tasks:
            with _Catch(task) as caught:
                decoded = reader.decode_values(task.source, self._channels, bool(self._ranges[0]))
                originals[task] = conversions.resize(conversions.to_network(decoded, self._ranges), self._size)
            outcomes[task] = Outcome(caught.reason)
        translations, failures = self._translate(originals)
        outcomes.update(failures)
        for translation in translations:
            outcomes[translation.task] = self._write(translation)
        return list(outcomes.values())

    def _translate(self, originals: dict[FileTask, DecodedImage]) -> tuple[list[Translation], dict[FileTask, Outcome]]:
        """Translate images together or, if that fails, one by one; return the translations and the failures."""
        if not originals:
            return [], {}
        model = self._models.get()
        try:
            with _Catch(None) as caught:
                translated = self._translate_and_back(model, [image.pixels for image in originals.values()])
            if caught.reason is None:
                return [Translation(*item) for item in zip(originals, originals.values(), *translated)], {}
            translations, failures = [], {}
            for task, image in originals.items():
                with _Catch(task) as caught:
                    (output,), (cycle,) = self._translate_and_back(model, [image.pixels])
                    translations.append(Translation(task, image, output, cycle))
                if caught.reason is not None:
                    failures[task] = Outcome(caught.reason)
            return translations, failures
        finally:
            self._models.put(model)

    def _translate_and_back(
        self, model: Model, images: Sequence[np.ndarray]
    ) -> tuple[list[np.ndarray], Sequence[np.ndarray | None]]:
        outputs, opposite = model.translator(self._direction)(np.stack(images)), OPPOSITE[self._direction]
        if not self._page_folder or opposite not in model.config.objective.directions:
            return list(outputs), [None] * len(images)
        return list(outputs), list(model.translator(opposite)(outputs))

    def _write(self, translation: Translation) -> Outcome:
        task, original, output, cycle = translation
        with _Catch(task) as caught:
            self._write_file(task, conversions.with_pixels(original, output))
        if caught.reason is not None:
            return Outcome(caught.reason)
        item = None
        with _Catch(task) as caught:
            if self._page_folder:
                images = {"input": original.pixels, "output": output, **({} if cycle is None else {"cycle": cycle})}
                item = page_images.write_item(self._page_folder, task.number, task.name, self._direction, images)
        height, width = original.pixels.shape[:2]
        return Outcome(
            unshown=caught.reason,
            item=item,
            tiled=height * width > self.max_pixels,
            cut=reader.has_more_frames(task.source),
        )

    def _write_file(self, task: FileTask, image: DecodedImage) -> None:
        """Write a translation with the values of the range of its domain."""
        format, value_range = self._format or writer.format_of(task.target), self._ranges[1]
        if format == "dicom":
            with writer.partial_file(task.target) as path:
                dicom_writer.write_copy(
                    path, task.source, image.pixels, value_range, image.fractional, self._derivation, self._network
                )
            return
        if value_range:
            image = image_to_values(image, value_range, image.fractional and format == "tiff")
        writer.write(task.target, image, self._format)


class _Catch:
    """Catch any error inside the context and describe it, so that one file does not stop the others.

    Attributes:
        reason: The description; `None` without an error.
    """

    def __init__(self, task: FileTask | None) -> None:
        self.reason: str | None = None
        self._name = task.source if task else "a batch"

    def __enter__(self) -> _Catch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        # Pillow's decoders raise almost any exception on a damaged file.
        if not isinstance(error, Exception) or isinstance(error, MissingPackageError):
            return False
        reason = loading.describe_error(error)
        if isinstance(error, tf.errors.ResourceExhaustedError):
            reason = "the device does not have enough memory for it; try a smaller --tile or --size"
        self.reason = printable(f"{self._name} ({reason})")
        return True
