import numpy as np

from cyclegan.data import drawn_builder, scenes, stripes


def test_the_builder_prepares_all_splits(stripes_dir):
    builder = drawn_builder.builder("stripes", 32, stripes_dir)
    builder.download_and_prepare()
    assert {name: split.num_examples for name, split in builder.info.splits.items()} == drawn_builder.SPLIT_SIZES
    tests = {split: [e["image"] for e in builder.as_dataset(split).as_numpy_iterator()] for split in ("testA", "testB")}
    for i in (0, 31):  # pairs of one scene
        one = stripes.random_scene(np.random.default_rng([3, i]))
        np.testing.assert_array_equal(tests["testA"][i], stripes.draw(one, "horse", 32))
        np.testing.assert_array_equal(tests["testB"][i], stripes.draw(one, "zebra", 32))
    train = [e["image"] for e in builder.as_dataset("trainA").take(32).as_numpy_iterator()]
    assert not any(np.array_equal(a, b) for a in train for b in tests["testA"])


def test_scenes_are_aligned_in_all_splits(tmp_path, monkeypatch):
    monkeypatch.setattr(drawn_builder, "SPLIT_SIZES", dict.fromkeys(drawn_builder.SPLIT_SIZES, 2))
    builder = drawn_builder.builder("scenes", 32, tmp_path)
    builder.download_and_prepare()
    for kind, seed in (("train", 1), ("test", 3)):
        for domain, drawn in (("A", "labels"), ("B", "rendering")):
            images = [example["image"] for example in builder.as_dataset(kind + domain).as_numpy_iterator()]
            expected = [scenes.random_scene(np.random.default_rng([seed, i])) for i in range(2)]
            np.testing.assert_array_equal(images, [scenes.draw(scene, drawn, 32) for scene in expected])


def test_the_builder_has_a_configuration_for_every_size(tmp_path):
    assert drawn_builder.builder("stripes", 64, tmp_path).info.full_name == "stripes/64/1.0.0"
    assert drawn_builder.builder("scenes", 128, tmp_path).info.full_name == "scenes/128/1.0.0"
    assert drawn_builder.builder("stripes", 48, tmp_path).info.features["image"].shape == (48, 48, 3)
