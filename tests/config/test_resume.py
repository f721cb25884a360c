from cyclegan.config import Config
from cyclegan.config.command_line import parse_args
from cyclegan.config.fields import FIXED, FREE, WARN
from cyclegan.config.resume import changed_settings, with_measured_ranges


def test_changed_settings_lists_one_kind():
    old, new = Config.from_settings(filters=8, lr=1.0, epochs=2), Config.from_settings(filters=9, lr=2.0, epochs=3)
    assert changed_settings(old, new, FIXED) == ["filters 8 -> 9"]
    assert changed_settings(old, new, WARN) == ["lr 1.0 -> 2.0", "lr_discriminator 1.0 -> 2.0"]
    assert changed_settings(old, new, FREE) == ["epochs 2 -> 3"]
    arithmetic = old.replace(deterministic=True, recompute=True)
    assert changed_settings(old, arithmetic, FREE) == ["deterministic False -> True", "recompute False -> True"]
    assert changed_settings(old, old.replace(epsilon=1e-8), WARN) == ["epsilon 1e-07 -> 1e-08"]


def test_precision_changes_with_a_warning():
    old, new = Config.from_settings(precision="bfloat16"), Config.from_settings(precision="float32", tf32="off")
    changes = ["precision 'bfloat16' -> 'float32'", "tf32 'on' -> 'off'"]
    assert changed_settings(old, new, WARN) == changes
    assert not changed_settings(old, new, FIXED) and not changed_settings(old, new, FREE)


def test_settings_without_effect_may_change_on_resume():
    run = Config.from_settings(
        norm="batch", norm_affine="no", lr_schedule="constant", decay_from=3, cache="ram", cache_gb=2.0
    )
    again = parse_args(["--norm", "batch", "--lr_schedule", "constant", "--cache", "ram"])
    assert not [change for kind in (FIXED, WARN, FREE) for change in changed_settings(run, again, kind)]
    assert changed_settings(run, Config.from_settings(), FIXED) == [
        "norm 'batch' -> 'instance'",
        "norm_affine 'no' -> 'yes'",
    ]


def test_a_resumed_run_keeps_the_ranges_that_it_measured():
    saved = Config.from_settings(value_range_x="100:200", value_range_y="auto")
    resumed = with_measured_ranges(saved, Config.from_settings(value_range_x="auto", value_range_y="auto"))
    assert (resumed.data.value_range_x, resumed.data.value_range_y) == ("100:200", "auto")
    given = Config.from_settings(value_range_x="0:300")
    assert with_measured_ranges(saved, given) == given
