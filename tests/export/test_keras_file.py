import numpy as np
import pytest

from cyclegan.export import keras_file
from tests.export.models import PICTURES, SUMS, weighted_sum


@pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")  # Keras warns when it saves
def test_a_file_computes_what_the_model_computes(tmp_path):
    keras_file.write(weighted_sum(), tmp_path / "out.keras", float16=False)
    np.testing.assert_allclose(keras_file.load(tmp_path / "out.keras")(PICTURES), SUMS, rtol=1e-6)
