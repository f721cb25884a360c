import json
import math

from cyclegan.evaluation import score_table

PROTOCOL = {
    **{
        "translated": 6,
        "real": 5,
        "height": 16,
        "width": 32,
        "rounding": "rounded",
        "features": "random: ...",
        "seed": 0,
    },
    **{"KID": "unbiased", "dataset": "stripes", "real_from": "elsewhere", "max_images": None, "preprocess": "crop"},
}
SCORES = {"scores": {"FID": 1.5, "PSNR": math.inf}, "untranslated": {"FID": 2.5}, "protocol": PROTOCOL}
RESULT = {"run": "runs/demo", "checkpoint": "epoch_0001", "epoch": 1, "step": 5, "directions": {"x2y": SCORES}}


def test_table_has_scores_and_protocol():
    assert list(score_table.table(RESULT)) == [
        "runs/demo, epoch_0001: 1 epochs, step 5",
        "",
        f"{'X -> Y':40} {'translated':>12} {'untranslated':>12}",
        f"{'FID':40} {'1.5':>12} {'2.5':>12}",
        f"{'PSNR to the truth, dB':40} {'inf':>12}",
        "6 held-out images of X of stripes, translated;",
        "5 real images of Y from elsewhere; 32 x 16 pixels",
        "rounded; KID: unbiased, seed 0",
        "",
        "Images: --preprocess crop (resized by Pillow, bicubic, antialiased)",
        "Features: random: ...",
        "Lower is better, except for PSNR and SSIM",
    ]


def test_json_has_null_for_infinity():
    scores = json.loads(score_table.to_json(RESULT))["directions"]["x2y"]["scores"]
    assert scores == {"FID": 1.5, "PSNR": None}


def test_table_of_checkpoints_marks_the_best():
    def result(epoch, fid, kid, aliases=()):
        part = {"scores": {"FID": fid, "KID": kid, "PSNR": 9.0}, "untranslated": {"FID": 2.5}, "protocol": PROTOCOL}
        changes = {"checkpoint": f"epoch_{epoch:04}", "epoch": epoch, "aliases": aliases, "directions": {"x2y": part}}
        return {**RESULT, **changes}

    results = [result(1, 1.5, 0.1), result(2, 1.25, 0.25, aliases=["best-x2y"])]
    assert list(score_table.checkpoints_table(results)) == [
        "runs/demo: 2 checkpoints; * marks the best of a column",
        "",
        "                      epoch     step     x2y FID      x2y KID",
        "epoch_0001                1        5         1.5          0.1*",
        "epoch_0002, best-x2y      2        5        1.25*        0.25",
        "untranslated                                 2.5",
        "",
        *list(score_table.table(RESULT))[-7:-1],
        "Lower is better",
    ]
    undefined = list(score_table.checkpoints_table([result(1, math.nan, 0.1), *results[1:], result(3, 2.0, math.nan)]))
    assert [line.count("*") for line in undefined[3:6]] == [1, 1, 0]
    assert json.loads(score_table.to_json({"checkpoints": [RESULT]}))["checkpoints"][0]["step"] == 5
