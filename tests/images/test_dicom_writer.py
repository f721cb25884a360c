import numpy as np
import pytest

from cyclegan.images.dicom_format import write_copy
from tests.images.dicom_samples import compressed, dicom, twelve_bits

pydicom = pytest.importorskip("pydicom")


@pytest.fixture
def copied(tmp_path):
    """Return a function that writes a copy of a DICOM file with other pixels, and reads it."""

    def copy(levels, value_range, fractional=False, **tags):
        (tmp_path / "in.dcm").write_bytes(dicom(twelve_bits(), WindowCenter=40, WindowWidth=400, **tags))
        write_copy(
            tmp_path / "out.dcm",
            tmp_path / "in.dcm",
            levels[..., None],
            value_range,
            fractional,
            "CycleGAN x2y, run",
            "net",
        )
        return pydicom.dcmread(tmp_path / "out.dcm")

    return copy


def real_values(dataset):
    """Return the values of a dataset as viewers compute them."""
    return dataset.pixel_array * float(dataset.RescaleSlope) + float(dataset.RescaleIntercept)


@pytest.mark.parametrize(
    "value_range, fractional, stored_type, step",
    [
        ((0, 4095), False, np.uint16, 1),
        ((-1000, 2000), False, np.int16, 1),
        ((-70000, 2000), False, np.uint16, 72000 / 65535),
        ((0, 1), False, np.uint16, 1 / 65535),
        ((0, 4095), True, np.uint16, 4095 / 65535),
        (None, False, np.uint16, 1),
    ],
    ids=str,
)
@pytest.mark.parametrize("syntax", ["1.2.840.10008.1.2", "1.2.840.10008.1.2.2"])
def test_values_are_those_of_the_range(copied, syntax, value_range, fractional, stored_type, step):
    levels = np.random.default_rng(1).integers(0, 65536, (7, 9)).astype(np.uint16)
    dataset = copied(levels, value_range, fractional, syntax=syntax)
    low, high = value_range or (0, 65535)
    assert dataset.pixel_array.dtype.newbyteorder("=") == stored_type and dataset.pixel_array.shape == (7, 9)
    assert np.abs(real_values(dataset) - (low + levels / 65535 * (high - low))).max() <= step / 2 + 1e-6 * (high - low)
    assert (dataset.WindowCenter, dataset.WindowWidth) == ((low + high) / 2, high - low)


def test_a_copy_is_a_derived_image_of_the_patient(copied):
    levels = np.zeros((7, 9), np.uint16)
    stale = {"SmallestImagePixelValue": 3, "Units": "BQML", "RealWorldValueMappingSequence": []}
    first = copied(levels, (0, 4095), PhotometricInterpretation="MONOCHROME1", RescaleType="HU", **stale)
    second = copied(levels, (0, 4095), NumberOfFrames=1)
    assert len({"1.2.3.4", first.SOPInstanceUID, second.SOPInstanceUID}) == 3
    assert first.file_meta.MediaStorageSOPInstanceUID == first.SOPInstanceUID
    assert first.SeriesInstanceUID == second.SeriesInstanceUID != "1.2.3"  # one new series
    assert first.RescaleType == "US"  # a CT image without a type has Hounsfield units
    assert first.ImageType == ["DERIVED", "SECONDARY", "AXIAL"] and first.DerivationDescription == "CycleGAN x2y, run"
    assert first.SourceImageSequence[0].ReferencedSOPInstanceUID == "1.2.3.4" and first.PatientName == "Doe^Jane"
    assert first.PhotometricInterpretation == "MONOCHROME2"
    assert not any(name in first for name in stale) and "NumberOfFrames" not in second


def test_pixels_of_another_size_fill_the_same_area(copied):
    spacings = {"PixelSpacing": [0.5, 0.7], "ImagerPixelSpacing": [1, 1], "NominalScannedPixelSpacing": None}
    resized = copied(np.zeros((15, 36), np.uint16), (0, 4095), **spacings)  # of 10 x 12 pixels
    assert resized.PixelSpacing == [0.3333333333, 0.2333333333]
    assert resized.ImagerPixelSpacing == [0.6666666667, 0.3333333333] and not resized.NominalScannedPixelSpacing
    same = copied(np.zeros((10, 12), np.uint16), (0, 4095), **spacings)
    assert same.PixelSpacing == [0.5, 0.7]
    shapes = {size: copied(np.zeros(size, np.uint16), None, PixelAspectRatio=[1, 2]) for size in ((20, 24), (20, 20))}
    assert [("PixelAspectRatio" in dataset) for dataset in shapes.values()] == [True, False]


def test_each_network_has_its_own_series(tmp_path):
    (tmp_path / "in.dcm").write_bytes(dicom(twelve_bits(), DigitalSignaturesSequence=[]))
    copies = []
    for network in ("a/ct", "b/ct"):
        write_copy(
            tmp_path / "out.dcm", tmp_path / "in.dcm", np.zeros((7, 9, 1), np.uint16), None, False, "ct", network
        )
        copies.append(pydicom.dcmread(tmp_path / "out.dcm"))
    assert copies[0].SeriesInstanceUID != copies[1].SeriesInstanceUID
    assert not any("DigitalSignaturesSequence" in copy for copy in copies)  # they were of other pixels


def test_a_copy_of_a_compressed_file_is_uncompressed(tmp_path):
    (tmp_path / "in.dcm").write_bytes(compressed(dicom(twelve_bits())))
    levels = np.random.default_rng(1).integers(0, 65536, (7, 9)).astype(np.uint16)
    write_copy(
        tmp_path / "out.dcm", tmp_path / "in.dcm", levels[..., None], (0, 65535), False, "CycleGAN x2y, run", "net"
    )
    dataset = pydicom.dcmread(tmp_path / "out.dcm")
    assert not dataset.file_meta.TransferSyntaxUID.is_compressed
    assert (real_values(dataset) == levels).all()
