"""DICOM files for the tests; `pytest.importorskip("pydicom")` comes before their use."""

import io
import struct

import numpy as np

from cyclegan.images.dicom_format import ITEM


def dicom(stored, bits=12, syntax="1.2.840.10008.1.2.1", **tags):
    """Return a DICOM file of stored values, int16 or uint16 [h, w], or [frames, h, w], or uint8 RGB [h, w, 3]."""
    from pydicom.dataset import Dataset, FileMetaDataset
    from pydicom.uid import UID, CTImageStorage

    dataset = Dataset()
    dataset.file_meta = FileMetaDataset()
    dataset.file_meta.MediaStorageSOPClassUID = dataset.SOPClassUID = CTImageStorage
    dataset.file_meta.MediaStorageSOPInstanceUID = dataset.SOPInstanceUID = "1.2.3.4"
    dataset.file_meta.TransferSyntaxUID = UID(syntax)
    dataset.SeriesInstanceUID, dataset.PatientName = "1.2.3", "Doe^Jane"
    dataset.ImageType = ["ORIGINAL", "PRIMARY", "AXIAL"]
    is_rgb = stored.ndim == 3 and stored.shape[2] == 3
    dataset.Rows, dataset.Columns = stored.shape[:2] if is_rgb else stored.shape[-2:]
    if stored.ndim == 3 and not is_rgb:
        dataset.NumberOfFrames = len(stored)
    dataset.SamplesPerPixel, dataset.PhotometricInterpretation = (3, "RGB") if is_rgb else (1, "MONOCHROME2")
    if is_rgb:
        dataset.PlanarConfiguration = 0
    dataset.BitsAllocated, dataset.BitsStored, dataset.HighBit = 8 * stored.itemsize, bits, bits - 1
    dataset.PixelRepresentation = int(stored.dtype.kind == "i")
    order = "<" if dataset.file_meta.TransferSyntaxUID.is_little_endian else ">"
    dataset.PixelData = stored.astype(stored.dtype.newbyteorder(order)).tobytes()
    dataset["PixelData"].VR = "OW"
    for name, value in tags.items():
        setattr(dataset, name, value)
    return _saved(dataset)


def twelve_bits(height=10, width=12, seed=0):
    """Return random values of 12 bits, uint16 [h, w]."""
    return np.random.default_rng(seed).integers(0, 4096, (height, width)).astype(np.uint16)


def compressed(content):
    """Return a DICOM file with its pixels in RLE Lossless, which pydicom encodes and decodes by itself."""
    import pydicom

    dataset = pydicom.dcmread(io.BytesIO(content))
    dataset.compress(pydicom.uid.RLELossless)
    return _saved(dataset)


def in_items(data):
    """Return a compressed frame as DICOM holds it, behind an empty table of offsets."""
    return b"".join(ITEM + struct.pack("<I", len(part)) + part for part in (b"", data + b"\0" * (len(data) % 2)))


def _saved(dataset):
    """Return a dataset as a file."""
    import pydicom

    file, syntax = io.BytesIO(), dataset.file_meta.TransferSyntaxUID
    if pydicom.__version__ < "3":  # for Python 3.9
        dataset.is_little_endian, dataset.is_implicit_VR = syntax.is_little_endian, syntax.is_implicit_VR
        dataset.save_as(file, write_like_original=False)
    else:
        dataset.save_as(file, enforce_file_format=True)
    return file.getvalue()
