import pytest
import tensorflow as tf

from cyclegan.errors import TrainingError
from cyclegan.training.out_of_memory import explain_out_of_memory


def test_exhausted_memory_names_the_flags_to_change():
    error = tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\nwith shape[1,64]")
    with pytest.raises(TrainingError) as explained, explain_out_of_memory():
        raise error
    text = str(explained.value)
    assert explained.value.__cause__ is error and "\n" not in text
    assert all(flag in text for flag in ("--batch_size", "--image_size", "--filters"))


def test_other_errors_pass():
    error = tf.errors.InvalidArgumentError(None, None, "shapes differ")
    with pytest.raises(tf.errors.InvalidArgumentError) as passed, explain_out_of_memory():
        raise error
    assert passed.value is error
    with explain_out_of_memory():
        pass
