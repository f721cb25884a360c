import time

import pytest

from cyclegan.benchmarking import forms
from cyclegan.benchmarking.settings import Setting


def setting(form="default", elsewhere=0.0, steps_per_call=1):
    return Setting(form, 16, 2, "float32", "off", 1, 5.0, steps_per_call, 2, 0, elsewhere=elsewhere)


def test_calls_of_a_stand_in_run_one_after_the_other():
    step = forms.make(None, setting(elsewhere=5.0, steps_per_call=4))  # 20 ms for each call
    assert step.gan is None and step.function is None
    began = time.perf_counter()
    first, second = step.call(None), step.call(None)
    first.numpy()
    assert time.perf_counter() - began >= 0.020
    second.numpy()
    assert time.perf_counter() - began >= 0.040


@pytest.mark.parametrize(
    "form, elsewhere, expected",
    [
        ("default", 0.0, "default"),
        ("without adam", 0.0, "default"),
        ("plain", 0.0, "plain"),
        ("without ahead", 5.0, "simulated"),
    ],
)
def test_the_setting_chooses_the_form(monkeypatch, form, elsewhere, expected):
    monkeypatch.setattr(forms, "default_form", lambda *_: "default")
    monkeypatch.setattr(forms, "plain_form", lambda *_: "plain")
    monkeypatch.setattr(forms, "simulated_step", lambda *_: "simulated")
    assert forms.make(None, setting(form, elsewhere)) == expected
