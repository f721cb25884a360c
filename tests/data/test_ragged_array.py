import numpy as np
import pytest

from cyclegan.data.ragged_array import RaggedArray


def test_images_keep_their_sizes():
    images = RaggedArray((3, None, None, 2), np.uint16)
    assert len(images) == 3 and images.shape == (3, None, None, 2)
    assert images.dtype.itemsize == 2
    small, large = np.zeros((2, 3, 2), np.uint16), np.ones((5, 4, 2), np.uint16)
    images[2], images[0] = large, small  # in any order, as several threads decode them
    assert images[0] is small and images[2] is images[-1] is large
    with pytest.raises(IndexError):
        images[3]
    with pytest.raises(IndexError):
        images[3] = small
