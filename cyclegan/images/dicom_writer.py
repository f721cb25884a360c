"""Writing of DICOM files: copies of an original with other pixels."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from cyclegan.config.data import ValueRange
from cyclegan.errors import printable
from cyclegan.images.dicom_reader import read_dataset
from cyclegan.images.value_range import FULL_RANGE, to_values, value_type

# Facts about the pixels of the original that are not true of others.
STALE = (
    *("SmallestImagePixelValue", "LargestImagePixelValue", "PixelPaddingValue", "PixelPaddingRangeLimit"),
    *("NumberOfFrames", "FrameIncrementPointer", "VOILUTSequence", "IconImageSequence", "PixelDataProviderURL"),
    *("PlanarConfiguration", "PresentationLUTShape", "WindowCenterWidthExplanation", "VOILUTFunction"),
    *("Units", "RealWorldValueMappingSequence"),  # such as HU, which another domain need not have
    *("ExtendedOffsetTable", "ExtendedOffsetTableLengths", "DigitalSignaturesSequence", "MACParametersSequence"),
)
SPACINGS = ("PixelSpacing", "ImagerPixelSpacing", "NominalScannedPixelSpacing")  # in mm, of rows and of columns
OVERLAY_GROUPS = range(0x6000, 0x6020, 2)
DESCRIPTION_LENGTH = 1024  # of the value representation ST


def write_copy(
    path: str | os.PathLike[str],
    original: str | os.PathLike[str],
    levels: np.ndarray,
    value_range: ValueRange | None,
    fractional: bool,
    description: str,
    network: str,
) -> None:
    """Write a copy of a DICOM file with other pixels, as a derived image of a new series.

    Args:
        path: The file to write.
        original: The DICOM file to copy.
        levels: uint16 [h, w, 1].
        value_range: The values that 0 and 65535 stand for.
        fractional: Whether to keep values between whole numbers, by a slope.
        description: How the pixels were derived.
        network: Text that no other network has.

    Raises:
        ValueError: The original lacks an identifier.
    """
    from pydicom.dataset import Dataset
    from pydicom.uid import generate_uid

    description = printable(description).encode("ascii", "backslashreplace").decode()  # fits every character set
    with open(original, "rb") as file:
        dataset = read_dataset(file)
    for name in ("SOPClassUID", "SOPInstanceUID"):
        if not dataset.get(name):
            raise ValueError(f"no {name}: expected a DICOM file with one, or --format tiff or png")
    source = Dataset()
    source.ReferencedSOPClassUID, source.ReferencedSOPInstanceUID = dataset.SOPClassUID, dataset.SOPInstanceUID
    if dataset.file_meta.TransferSyntaxUID.is_compressed:
        dataset.decompress()
    for name in STALE:
        if name in dataset:
            delattr(dataset, name)
    for group in OVERLAY_GROUPS:
        for element in dataset.group_dataset(group):
            del dataset[element.tag]
    dataset.SOPInstanceUID = dataset.file_meta.MediaStorageSOPInstanceUID = generate_uid()
    # Translations of one series by one network stay together.
    dataset.SeriesInstanceUID = generate_uid(entropy_srcs=[str(dataset.get("SeriesInstanceUID")), network])
    dataset.ImageType = ["DERIVED", "SECONDARY", *list(dataset.get("ImageType") or ())[2:]]
    dataset.DerivationDescription, dataset.SourceImageSequence = description[:DESCRIPTION_LENGTH], [source]
    _set_pixels(dataset, levels, value_range or FULL_RANGE, fractional)
    dataset.save_as(path)


def _set_pixels(dataset: Any, levels: np.ndarray, value_range: ValueRange, fractional: bool) -> None:
    low, high = value_range
    dtype, slope, intercept = value_type(value_range, fractional), 1.0, 0.0
    if dtype == np.float32:
        stored, slope, intercept = levels, (high - low) / np.iinfo(np.uint16).max, low
    else:
        stored = to_values(levels, value_range, np.int16 if dtype == np.int16 else np.uint16)
    before, after = (dataset.Rows, dataset.Columns), stored.shape[:2]
    if before[0] * after[1] != before[1] * after[0] and "PixelAspectRatio" in dataset:
        del dataset.PixelAspectRatio
    for name in SPACINGS if before != after else ():
        if spacing := dataset.get(name):
            setattr(dataset, name, [f"{mm * old / new:.10g}" for mm, old, new in zip(spacing, before, after)])
    dataset.Rows, dataset.Columns = after
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = 1, "MONOCHROME2"
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 16, 16, 15
    dataset.PixelRepresentation = int(stored.dtype == np.int16)
    dataset.RescaleSlope, dataset.RescaleIntercept = f"{slope:.10g}", f"{intercept:.10g}"
    dataset.RescaleType = "US"  # unspecified: a CT image without a type has Hounsfield units
    dataset.WindowCenter, dataset.WindowWidth = f"{(low + high) / 2:.10g}", f"{high - low:.10g}"
    order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
    dataset.PixelData = stored.astype(f"{order}{stored.dtype.kind}2").tobytes()
    dataset["PixelData"].VR = "OW"
