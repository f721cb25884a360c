import threading
import types

import pytest

from cyclegan import terminal
from cyclegan.config import Config
from cyclegan.distribution import hardware
from cyclegan.distribution.workers import Watchdog
from cyclegan.training import step_form
from cyclegan.training.autotune import Trial
from cyclegan.training.step_form import choose_form

NO_WATCH = Watchdog(None, lambda: None)


def choose(config, workers, train, earlier_xla=None, guard=NO_WATCH):
    """Call `choose_form` without networks."""
    return choose_form(config.performance, config.networks, config.run, earlier_xla, workers, None, train, guard)


@pytest.mark.parametrize(
    "given, saved, on_gpu, flags, chosen, trials",
    [
        ("auto", None, True, {}, "on", 1),
        ("auto", "auto", True, {}, "on", 1),
        ("auto", "off", True, {}, "off", 0),  # a resumed run computes as before
        ("off", "on", True, {}, "off", 0),
        ("auto", None, False, {}, "auto", 0),
        ("auto", None, True, {"dropout": 0.5}, "auto", 0),  # XLA makes other masks
        ("auto", None, True, {"deterministic": True}, "off", 0),  # two runs could choose different forms
        ("auto", "on", True, {"deterministic": True}, "on", 0),
        ("on", None, False, {}, "on", 0),
    ],
)
def test_xla_is_chosen_once_where_it_is_open(monkeypatch, caplog, given, saved, on_gpu, flags, chosen, trials):
    caplog.set_level("INFO")
    tried = []
    monkeypatch.setattr(hardware, "has_accelerator", lambda: on_gpu)
    monkeypatch.setattr(step_form, "compile_train_step", lambda *_, xla: "compiled")
    trial = Trial("with XLA", {"without XLA": 0.002, "with XLA": 0.001})
    monkeypatch.setattr(step_form, "try_forms", lambda forms, *_: tried.append(forms) or trial)
    config = Config.from_settings(xla=given, steps_per_call=1, **flags)
    train = types.SimpleNamespace(function="plain", dataset=None)
    assert choose(config, types.SimpleNamespace(strategy=None), train, earlier_xla=saved) == chosen
    assert len(tried) == trials
    assert train.function == ("compiled" if chosen == "on" else "plain")
    line = "--xla on from here on: a step takes 2.0 ms without XLA, 1.0 ms with XLA"
    assert (line in caplog.messages) == bool(trials)


@pytest.mark.parametrize(
    "flags, chosen, trials",
    [
        ({}, 5, 1),
        ({"no_peak": True}, 5, 1),
        ({"xla": "on"}, 5, 1),
        ({"log_every": 8}, 4, 1),
        ({"steps_per_call": 2}, 2, 0),
        ({"checkpoint_minutes": 0}, 1, 0),
    ],
)
def test_steps_per_call_follow_the_time_of_a_step(monkeypatch, flags, chosen, trials):
    tried = []
    monkeypatch.setattr(hardware, "has_accelerator", lambda: False)
    monkeypatch.setattr(step_form, "compile_train_step", lambda *_, xla: "compiled")
    monkeypatch.setattr(
        step_form, "try_forms", lambda forms, *_: tried.append(forms) or Trial(*forms, dict.fromkeys(forms, 0.02))
    )
    config = Config.from_settings(**flags)
    workers = types.SimpleNamespace(strategy=None, broadcast_from_chief=lambda steps: steps)
    dataset = types.SimpleNamespace(steps_per_call=config.performance.steps_per_call or 1)
    train = types.SimpleNamespace(function="plain", dataset=dataset)
    choose(config, workers, train)
    assert dataset.steps_per_call == chosen and len(tried) == trials
    assert train.function == ("compiled" if "xla" in flags else "plain")


def test_a_worker_that_waits_in_the_trial_ends(monkeypatch):
    ended, found = threading.Event(), []

    def end(*arguments):
        found.append(arguments)
        ended.set()

    def wait(forms, model, dataset, workers, beat):  # as for a worker that is lost
        beat()
        assert ended.wait(10)
        return Trial("without XLA", {"without XLA": 0.1})

    monkeypatch.setattr(terminal, "end", end)
    monkeypatch.setattr("cyclegan.distribution.workers.WATCH_INTERVAL", 0.02)
    monkeypatch.setattr(step_form, "compile_train_step", lambda *_, xla: "compiled")
    monkeypatch.setattr(step_form, "try_forms", wait)
    config = Config.from_settings()
    workers = types.SimpleNamespace(strategy=None, broadcast_from_chief=lambda steps: steps)
    train = types.SimpleNamespace(function="plain", dataset=types.SimpleNamespace(steps_per_call=1))
    choose(config, workers, train, guard=Watchdog(0.1, lambda: "epoch_0003"))
    assert "(--step_timeout), so training stops" in found[0][0] and found[0][1] == 1
