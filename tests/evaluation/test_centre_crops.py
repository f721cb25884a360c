import numpy as np

from cyclegan.evaluation.centre_crops import CentreCrops


def test_batch_is_cropped_and_filled_up():
    images = np.arange(3 * 5 * 6, dtype=np.uint8).reshape(3, 5, 6, 1)
    crops = CentreCrops(images, (3, 2))
    assert len(crops) == 3 and crops.dtype == np.uint8
    batch = crops.batch([1, 2], 4)
    np.testing.assert_array_equal(batch[:2], images[1:, 1:4, 2:4])
    np.testing.assert_array_equal(batch[2:], images[[2, 2], 1:4, 2:4])
