import numpy as np
import pytest
import tensorflow as tf

from cyclegan.export import tflite
from cyclegan.export.exporter import FLOAT16_TOLERANCE, ExportOptions, export
from tests.export.models import PICTURES, SUMS, make_generator, weighted_sum

# TensorFlow 2.21 has the interpreter, and warns.
pytestmark = pytest.mark.filterwarnings("ignore:(?s).*Interpreter is deprecated:UserWarning")


def test_a_file_computes_what_the_model_computes(tmp_path):
    tflite.write(weighted_sum(), tmp_path / "out.tflite", float16=False)
    np.testing.assert_allclose(tflite.load(tmp_path / "out.tflite")(PICTURES), SUMS, rtol=1e-6)
    wide = np.repeat(PICTURES, 3, axis=2)
    np.testing.assert_allclose(tflite.load(tmp_path / "out.tflite")(wide), np.repeat(SUMS, 3, axis=2), rtol=1e-6)
    signatures = tf.lite.Interpreter(str(tmp_path / "out.tflite")).get_signature_list()
    assert signatures == {"serving_default": {"inputs": ["picture"], "outputs": ["translated"]}}


@pytest.mark.slow
def test_float16_and_fixed_size_in_tflite(tmp_path):
    generator = make_generator(3, 1)
    image = np.random.default_rng(5).integers(0, 256, (32, 32, 3)).astype(np.uint8)
    differences = [
        export(generator, tmp_path / name, [image], ExportOptions("tflite", float16=name == "half", size=(32, 32)))
        for name in ("whole", "half")
    ]
    assert differences[0] < 1e-4 < differences[1] < FLOAT16_TOLERANCE
    whole, half = ((tmp_path / name).stat().st_size for name in ("whole", "half"))
    assert half < 0.8 * whole
