from cyclegan.benchmarking.settings import Plan, Setting

VALUES = {
    **{"size": [64, 256], "batch": [2], "precision": ["auto", "float32"], "xla": ["off"], "replicas": [1]},
    **{"identity": [0.0, 5.0], "steps_per_call": [1], "objective": ["cyclegan", "cut"]},
}
PLAN = Plan("steps", VALUES, 8, None, ("few", "ahead"), has_plain=True, runs=3, warmup=2)


def test_turns_of_the_warm_up_do_not_count():
    assert list(PLAN.turns) == [-2, -1, 0, 1, 2]


def test_forms_leave_out_the_levers_of_their_part():
    assert PLAN.forms == ["default", "without few"]  # "ahead" belongs to the input pipeline


def test_the_best_precision_is_timed_once():
    assert PLAN.resolve_precision("bfloat16").values["precision"] == ["bfloat16", "float32"]
    assert PLAN.resolve_precision("float32").values["precision"] == ["float32"]


def test_settings_are_all_different_combinations():
    settings = list(PLAN.settings(form=PLAN.forms))
    # 2 forms, 2 sizes and 2 precisions, of CycleGAN with both weights and of CUT, which has no identity loss.
    assert len(set(settings)) == len(settings) == 2 * 2 * 2 * (2 + 1)
    assert {(each.objective, each.identity) for each in settings} == {
        ("cyclegan", 0.0),
        ("cyclegan", 5.0),
        ("cut", None),
    }
    assert {(each.size, each.residual_blocks) for each in settings} == {(64, 6), (256, 9)}
    assert {(each.form, each.lever) for each in settings} == {("default", ""), ("without few", "few")}


def test_a_setting_has_the_configuration_of_its_training():
    setting = Setting("default", 32, 2, "bfloat16", "on", 1, 2.5, 1, 8, 0, variant="paper")
    config = setting.config()
    assert (config.data.image_size, config.networks.filters, config.networks.residual_blocks) == (32, 8, 0)
    assert (config.networks.variant, config.objective.lambda_identity) == ("paper", 2.5)
    assert (config.performance.precision, config.performance.xla) == ("bfloat16", "on")
    simulated = setting.without_step()
    assert (simulated.precision, simulated.xla, simulated.identity, simulated.size) == ("", "", None, 32)
