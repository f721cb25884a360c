import pathlib

import numpy as np

from cyclegan.inspection import table
from cyclegan.inspection.findings import CONSTANT, DUPLICATES, Finding
from cyclegan.inspection.inspection import Inspection
from cyclegan.inspection.measure import MEASURES


def inspection(*images, findings=(), notes=()):
    """Return an inspection of images: (split, height, width, kind, mean, deviation) each; an unreadable one has a split only."""
    measures = np.zeros(len(images), MEASURES)
    for row, (_, *values) in zip(measures, images):
        if values:
            row["readable"] = True
            row["height"], row["width"], row["kind"], row["mean"], row["deviation"] = values
    names, splits = [f"{i}.png" for i in range(len(images))], np.array([split for split, *_ in images])
    return Inspection(pathlib.Path("data"), (3, 3), (None, None), names, splits, measures, findings, notes)


def test_statistics_by_hand():
    found = inspection(
        (0, 10, 20, "RGB", 100, 0), (0, 20, 20, "L", 200, 0), (0, 30, 20, "RGB", 150, 0),
        (1, 30, 15, "RGB", (1, 2, 3), (4, 5, 6)), (2,),
    )  # fmt: skip
    # The pixels of trainA are 100, 200 and 150: their variance is (50**2 + 50**2 + 0) / 3 = 41**2.
    assert table.statistics(found) == [
        ["", "trainA", "trainB", "testA", "testB"],
        ["images", "3", "1", "0", "0"],
        ["width, pixels", "20", "15", "", ""],
        ["height, pixels", "10 20 30", "30", "", ""],
        ["width / height", "0.6667 1 2", "0.5", "", ""],
        ["bands", "RGB 2, L 1", "RGB", "", ""],
        ["mean", "150 150 150", "1 2 3", "", ""],
        ["deviation", "41 41 41", "4 5 6", "", ""],
    ]


def test_many_kinds_of_files_are_shortened():
    images = [(0, 8, 8, kind, 0, 0) for kind in ("L", "RGB", "RGB", "RGB", "LA", "LA", "RGBA", "RGBA")]
    rows = {title: cells for title, *cells in table.statistics(inspection(*images))}
    assert rows["bands"][0] == "RGB 3, LA 2, RGBA 2, ..."


def test_few_groups_and_few_images_of_a_group_are_named():
    image = (0, 8, 8, "RGB", 0, 0)
    groups = [[0, 1], [2, 3, 4, 5, 6], [7], [8]]
    findings = (Finding(DUPLICATES, groups, {0: "first"}), Finding(CONSTANT, [[9]]))
    lines = list(table.lines(inspection(*[image] * 10, findings=findings, notes=["a note"])))
    assert lines[lines.index(table.LEGEND) + 1 :] == [
        "a note",
        "",
        "1. duplicates: 9 images in 4 groups",
        "     0.png (first), 1.png",
        "     2.png, 3.png, 4.png, 5.png, ...",
        "     7.png",
        "     ...",
        f"   {DUPLICATES.meaning}",
        f"   {DUPLICATES.advice}",
        "",
        "2. nearly constant images: 1 image",
        "     9.png",
        f"   {CONSTANT.meaning}",
        f"   {CONSTANT.advice}",
    ]


def test_a_sound_dataset_is_called_so():
    *_, last = table.lines(inspection((0, 8, 8, "RGB", 0, 0)))
    assert last == "Nothing was found that harms training."
