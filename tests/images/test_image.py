import pytest

from cyclegan.images.image import check_pixel_count


@pytest.mark.parametrize("size", [(18_000, 10_000), (180_000_000, 1), (18_000, 10_000, 4), (12_000, 12_000, 5)])
def test_largest_images_are_accepted(size):
    """Accept 180 million pixels of up to four bands; five bands count as 5 / 4 as many."""
    check_pixel_count(*size)


@pytest.mark.parametrize(
    "size, text",
    [
        ((18_000, 10_001), "18000 x 10001 pixels: expected at most 180 million"),
        ((18_000, 10_001, 4), "18000 x 10001 pixels: expected at most 180 million"),
        ((12_001, 12_000, 5), "12001 x 12000 pixels of 5 bands: expected at most 180 million"),
        ((2**31, 2**31, 2**16), "pixels of 65536 bands"),
    ],
)
def test_larger_images_are_refused(size, text):
    with pytest.raises(ValueError, match=text):
        check_pixel_count(*size)
