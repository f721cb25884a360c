import numpy as np
import onnx
from tf2onnx.optimizer.reshape_optimizer import ReshapeOptimizer

from cyclegan.export import onnx_file
from tests.export.models import PICTURES, SUMS, weighted_sum


def test_a_file_computes_what_the_model_computes(tmp_path):
    optimize = ReshapeOptimizer.optimize
    onnx_file.write(weighted_sum(), tmp_path / "out.onnx", float16=False)
    assert ReshapeOptimizer.optimize is optimize
    np.testing.assert_allclose(onnx_file.load(tmp_path / "out.onnx")(PICTURES), SUMS, rtol=1e-6)
    made = onnx.load(tmp_path / "out.onnx")
    shapes = {
        value.name: [part.dim_param or part.dim_value for part in value.type.tensor_type.shape.dim]
        for value in (*made.graph.input, *made.graph.output)
    }
    assert shapes == {"picture": ["N", "H", "W", 3], "translated": ["N", "H", "W", 1]}
    assert [part.version for part in made.opset_import if part.domain == ""] == [17]
