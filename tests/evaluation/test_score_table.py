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
RESULT = {
    **{"run": "runs/demo", "checkpoint": "epoch_0001", "epoch": 1, "step": 5},
    "directions": {
        "x2y": {"scores": {"FID": 1.5, "PSNR": math.inf}, "untranslated": {"FID": 2.5}, "protocol": PROTOCOL}
    },
}


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
