import numpy as np
import tensorflow as tf

from cyclegan.export import savedmodel
from tests.export.models import PICTURES, SUMS, weighted_sum


def test_a_folder_computes_what_the_model_computes(tmp_path):
    savedmodel.write(weighted_sum(), tmp_path / "out", float16=False)
    assert (tmp_path / "out" / savedmodel.FORMAT.marker).is_file()
    np.testing.assert_allclose(savedmodel.load(tmp_path / "out")(PICTURES), SUMS, rtol=1e-6)
    served = tf.saved_model.load(str(tmp_path / "out")).signatures["serving_default"](picture=tf.constant(PICTURES))
    assert list(served) == ["translated"]
    np.testing.assert_allclose(served["translated"], SUMS, rtol=1e-6)
