"""Named sets of settings."""

from __future__ import annotations

import os
from typing import Any

PRESETS: dict[str, dict[str, Any]] = {
    "paper": {
        **{"variant": "paper", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "load_size": 286},
        **{"epochs": 200, "decay_from": 100, "lr": 2e-4, "beta_1": 0.5, "beta_2": 0.999, "pool_size": 50},
    },
    "tutorial": {
        **{"variant": "keras", "generator": "resnet_9blocks", "filters": 64, "image_size": 256, "load_size": 286},
        **{"epochs": 200, "lr_schedule": "constant", "lr": 2e-4, "beta_1": 0.5, "beta_2": 0.9, "pool_size": 0},
    },
    "fast": {"image_size": 128, "load_size": 143, "generator": "resnet_6blocks", "filters": 32, "epochs": 100},
    "demo": {"dataset": "stripes", "epochs": 5, "plot_every": 1, "output_dir": os.path.join("runs", "demo")},
}
