"""Each format computes what a model computes, worked out by hand, and names its input and output."""

import re

import numpy as np
import onnx
import pytest
import tensorflow as tf

from cyclegan.cli import export
from cyclegan.export.formats import FORMATS
from tests.export.models import PICTURES, SUMS, weighted_sum

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:(?s).*Interpreter is deprecated:UserWarning"
    ),  # TensorFlow 2.21 has it, and warns
    pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning"),  # Keras warns when it saves
]


def test_the_command_offers_each_format(capsys):
    with pytest.raises(SystemExit):
        export.parse(["--help"])
    offered = set(re.findall(r"--format \{([\w,]+)\}", capsys.readouterr().out))
    assert offered == {",".join(FORMATS)}


@pytest.fixture
def written(tmp_path):
    """Return a function that writes a model in a format, checks what the file computes, and returns its path."""

    def write(name):
        path, form = tmp_path / f"out{FORMATS[name].suffix}", FORMATS[name]
        form.write(weighted_sum(), path, False)
        np.testing.assert_allclose(form.load(path)(PICTURES), SUMS, rtol=1e-6)  # without the dropout of training
        wide = np.repeat(PICTURES, 3, axis=2)
        np.testing.assert_allclose(form.load(path)(wide), np.repeat(SUMS, 3, axis=2), rtol=1e-6)
        return path

    return write


def test_keras_and_savedmodel(written):
    assert written("keras").is_file()
    path = written("savedmodel")
    assert (path / FORMATS["savedmodel"].marker).is_file()
    served = tf.saved_model.load(str(path)).signatures["serving_default"](picture=tf.constant(PICTURES))
    assert list(served) == ["translated"]
    np.testing.assert_allclose(served["translated"], SUMS, rtol=1e-6)


def test_tflite(written):
    signatures = tf.lite.Interpreter(str(written("tflite"))).get_signature_list()
    assert signatures == {"serving_default": {"inputs": ["picture"], "outputs": ["translated"]}}


def test_onnx(written):
    made = onnx.load(written("onnx"))
    shapes = {
        value.name: [part.dim_param or part.dim_value for part in value.type.tensor_type.shape.dim]
        for value in (*made.graph.input, *made.graph.output)
    }
    assert shapes == {"picture": ["N", "H", "W", 3], "translated": ["N", "H", "W", 1]}
    assert [part.version for part in made.opset_import if part.domain == ""] == [17]
