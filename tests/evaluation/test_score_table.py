"""Tables and JSON of scores."""

import json
import math

import pytest

from cyclegan.cli.evaluate import checkpoints_table, table, to_json

PROTOCOL = {"translated": 6, "real": 5, "height": 16, "width": 32, "rounding": "rounded", "features": "random: ..."}
PROTOCOL |= {"KID": "unbiased", "seed": 0, "dataset": "stripes", "real_from": "elsewhere", "max_images": None}
PROTOCOL |= {"preprocess": "crop", "protocol": None}

COMPARED = [
    "",
    "X -> Y: 6 held-out images of X of stripes, translated, and 5 real images of Y from elsewhere, 32 x 16 pixels;"
    " rounded; KID: unbiased, seed 0",
    "Images: --preprocess crop (resized by Pillow, bicubic, antialiased)",
    "Features: random: ...",
]


def result(epoch, aliases=(), **scores):
    part = {"scores": scores, "untranslated": {"FID": 2.5, "KID": 0.5}, "protocol": PROTOCOL}
    found = {"run": "runs/demo", "checkpoint": f"epoch_{epoch:04}", "epoch": epoch, "step": 5, "aliases": aliases}
    return {**found, "directions": {"x2y": part}}


def test_table_and_json_of_one_checkpoint():
    one = result(1, FID=1.5, PSNR=math.inf)
    assert list(table(one)) == [
        "runs/demo, epoch_0001: 1 epoch, step 5",
        "",
        "X -> Y                 translated  untranslated",
        "FID                           1.5           2.5",
        "PSNR to the truth, dB         inf",
        "By FID, translated images are nearer to real images of Y than untranslated ones",
        "Lower is better, except for PSNR",
        *COMPARED,
    ]
    assert json.loads(to_json(one))["directions"]["x2y"]["scores"] == {"FID": 1.5, "PSNR": None}


@pytest.mark.parametrize(
    "scores, text", [({}, ""), ({"PSNR": 9.0, "SSIM": 0.5, "MAE": 1.0}, ", except for PSNR and SSIM")]
)
def test_only_scores_of_the_table_are_said_to_be_better_if_higher(scores, text):
    assert "Lower is better" + text in table(result(1, FID=1.5, **scores))


def test_table_of_checkpoints_marks_the_best():
    results = [result(1, FID=1.5, KID=0.1, KID_std=1), result(2, ["best-x2y"], FID=1.25, KID=0.25, KID_std=1)]
    assert list(checkpoints_table(results)) == [
        "runs/demo: * marks the best of a column; lower is better",
        "",
        "                      epoch  step  x2y FID   x2y KID",
        "epoch_0001                1     5      1.5       0.1*",
        "epoch_0002, best-x2y      2     5     1.25*     0.25",
        "untranslated                           2.5       0.5",
        *COMPARED,
    ]
    others = [result(1, FID=math.nan, KID=0.1, KID_std=1), results[1], result(3, FID=2.0, KID=math.nan, KID_std=1)]
    assert [line.count("*") for line in list(checkpoints_table(others))[3:6]] == [1, 1, 0]
    few = [result(1, FID=1.5, KID=0.1), result(2, FID=1.25, KID=0.25)]  # fewer than 20 images
    assert not [line for line in checkpoints_table(few) if "*" in line]
