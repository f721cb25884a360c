import tensorflow as tf

from cyclegan.methods.metric_names import SAMPLES
from cyclegan.training.metric_totals import MetricTotals, means


def test_a_new_pass_sums_all_metrics():
    totals = MetricTotals(["a", "b"], {})
    assert totals.to_host() == {"a": 0.0, "b": 0.0, SAMPLES: 0.0}
    assert all(total.dtype == tf.float64 for total in totals.tensors.values())


def test_a_resumed_pass_keeps_the_metrics_it_had():
    totals = MetricTotals(["a", "b"], {"a": 3.0, SAMPLES: 2.0})
    assert set(totals.tensors) == {"a", "b", SAMPLES}
    totals.tensors = {name: total + 1 for name, total in totals.tensors.items()}
    assert totals.to_host() == {"a": 4.0, SAMPLES: 3.0}


def test_means_divide_by_the_samples():
    assert means({"a": 3.0, SAMPLES: 2.0}) == {"a": 1.5}
    assert means({}) == means({"a": 0.0, SAMPLES: 0.0}) == {}
