import pytest

from cyclegan.images.image import check_size, row_blocks


@pytest.mark.parametrize(
    "size, text",
    [
        ((18_000, 10_001), "18000 x 10001 pixels: expected at most 180 million"),
        ((2**31, 2**31), "pixels: expected at most 180 million"),
        ((0, 8), "0 x 8 pixels: expected at least 1"),
        ((8, 0), "8 x 0 pixels: expected at least 1"),
        ((9, 8, 2_010_000_000), "9 x 8 pixels, which take 2.01 GB of memory to decode: expected at most 2 GB"),
    ],
)
def test_other_sizes_are_refused(size, text):
    with pytest.raises(ValueError, match=text):
        check_size(*size)


def test_row_blocks_cover_all_rows_once():
    for shape in ((10, 100_000, 3), (1, 1), (7, 600_000), (4, 0), (0, 5)):
        rows = [row for block in row_blocks(shape) for row in range(shape[0])[block]]
        assert rows == list(range(shape[0]))
    assert [block.stop for block in row_blocks((10, 100_000))] == [5, 10]
