import re

import numpy as np
import pytest

from cyclegan.config.data import ALIGNED, EMBEDDED
from cyclegan.data import drawn_builder, pairs
from cyclegan.errors import UserError

X = ["trainA/a/1.png", "trainA/a/2.png", "trainA/b/1.png", "trainA/c.v2.tif"]
Y = ["trainB/a/2.jpg", "trainB/b/1.JPG", "trainB/c.png", "trainB/c.v2.png", "trainB/trainA/a/1.png"]


def find(x, y, x_size=(4, 5), y_size=(4, 5)):
    sizes = {"trainA": np.tile(x_size, (len(x), 1)), "trainB": np.tile(y_size, (len(y), 1))}
    return pairs.find_pairs({"trainA": x, "trainB": y}, sizes).tolist()


def test_equal_paths_but_for_the_extension_are_pairs():
    assert find(X, Y) == [[1, 0], [2, 1], [3, 3]]


def test_images_of_scenes_are_pairs_by_their_number():
    names = [[f"scenes/64/1.0.0/{split}[{i}]" for i in range(count)] for split, count in (("trainA", 3), ("trainB", 4))]
    assert find(*names) == [[0, 0], [1, 1], [2, 2]]
    seeds = {name: drawn_builder.BUILDERS[name].SEEDS for name in EMBEDDED}
    assert {name for name in EMBEDDED if seeds[name]["trainA"] == seeds[name]["trainB"]} == {*ALIGNED}


@pytest.mark.parametrize(
    "x, y, text",
    [
        (
            X[:1],
            Y,
            "no image of trainA has the name of an image of trainB, for example trainA/a/1.png and trainB/a/2.jpg",
        ),
        (
            [*X, "trainA/b/1.jpg"],
            Y,
            "trainA/b/1.png and trainA/b/1.jpg have the same name; expected one image of a name",
        ),
        (X, [*Y, "trainB/b/1.gif"], "trainB/b/1.JPG and trainB/b/1.gif have the same name"),
    ],
)
def test_names_that_give_no_pairs_are_refused(x, y, text):
    with pytest.raises(UserError, match=re.escape(f"--paired_names: {text}")):
        find(x, y)


def test_a_name_twice_without_a_partner_does_no_harm():
    assert find([*X, "trainA/z.png", "trainA/z.jpg"], Y) == find(X, Y)


def test_pairs_of_different_sizes_are_refused():
    with pytest.raises(
        UserError, match=r"trainA/a/2.png \(5 x 4 pixels\) and trainB/a/2.jpg \(6 x 4 pixels\) differ in size"
    ):
        find(X, Y, y_size=(4, 6))
