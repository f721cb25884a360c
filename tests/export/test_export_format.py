import numpy as np
import tensorflow as tf

from cyclegan.export.export_format import traced_function
from tests.export.models import PICTURES, SUMS, weighted_sum


def test_a_traced_function_names_its_input_and_output():
    function, signature = traced_function(weighted_sum())
    assert signature == [tf.TensorSpec([None, None, None, 3], tf.float32, "picture")]
    assert function.get_concrete_function().structured_input_signature == ((signature[0],), {})
    translated = function(tf.constant(PICTURES))  # without the dropout of training
    assert list(translated) == ["translated"]
    np.testing.assert_allclose(translated["translated"], SUMS, rtol=1e-6)
