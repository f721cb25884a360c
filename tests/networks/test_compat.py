import pytest
import tensorflow as tf

from cyclegan.networks import compat
from cyclegan.networks.layers import Convolution, LeakyReLU, ReflectionPadding2D
from cyclegan.networks.normalization import make_instance_normalization
from tests.networks.helpers import noise


def test_stack_has_the_major_version_of_keras():
    assert compat.stack()["keras"] == (3 if tf.__version__ >= "2.16" else 2)


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
def test_layers_compute_in_the_policys_precision_with_float32_variables(precision):
    with compat.precision_policy(precision):
        layer = Convolution(3, 3)
        pad, relu, norm = ReflectionPadding2D(1), LeakyReLU(), make_instance_normalization()
    after = Convolution(3, 3)
    x = noise(1, 8, 8, 3)
    assert layer(x).dtype == pad(x).dtype == relu(x).dtype == precision
    assert norm(layer(x)).dtype == precision and after(x).dtype == "float32"
    assert {tf.as_dtype(v.dtype).name for v in layer.variables + norm.variables + after.variables} == {"float32"}


def test_policy_is_restored_after_an_exception():
    before = tf.keras.mixed_precision.global_policy().name
    with pytest.raises(RuntimeError), compat.precision_policy("bfloat16"):
        assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        with compat.precision_policy("float32"):
            assert tf.keras.mixed_precision.global_policy().name == "float32"
        assert tf.keras.mixed_precision.global_policy().name == "mixed_bfloat16"
        raise RuntimeError
    assert tf.keras.mixed_precision.global_policy().name == before == "float32"
