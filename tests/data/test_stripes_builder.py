import numpy as np

from cyclegan.data import stripes, stripes_builder


def test_the_builder_prepares_all_splits(stripes_dir):
    builder = stripes_builder.builder(32, stripes_dir)
    builder.download_and_prepare()
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == stripes_builder.SPLIT_SIZES
    tests = {split: [e["image"] for e in builder.as_dataset(split).as_numpy_iterator()] for split in ("testA", "testB")}
    for i in (0, 31):  # pairs of one scene
        one = stripes.random_scene(np.random.default_rng([3, i]))
        np.testing.assert_array_equal(tests["testA"][i], stripes.draw(one, "horse", 32))
        np.testing.assert_array_equal(tests["testB"][i], stripes.draw(one, "zebra", 32))
    train = [e["image"] for e in builder.as_dataset("trainA").take(32).as_numpy_iterator()]
    assert not any(np.array_equal(a, b) for a in train for b in tests["testA"])


def test_the_builder_has_a_configuration_for_every_size(tmp_path):
    assert stripes_builder.builder(64, tmp_path).info.full_name == "stripes/64/1.0.0"
    assert stripes_builder.builder(48, tmp_path).info.features["image"].shape == (48, 48, 3)
