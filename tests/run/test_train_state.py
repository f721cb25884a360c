import dataclasses
import json
import re
import typing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.errors import UserError
from cyclegan.run.train_state import ADDED, PassState, TrainState

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, database=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=8,
)


def in_the_middle():
    """Return a state in the middle of an epoch, in which no field has its default."""
    return TrainState(
        epoch=3,
        step=40,
        reshuffles=1,
        global_batch_size=6,
        log_bytes=1234,
        train=PassState(pairs_done=12, sums={"loss_G/loss": 1.5, "samples": 12}, seconds=2.5, skipped_steps=1),
        test=PassState(pairs_done=6, sums={"samples": 6.0}, seconds=0.5, skipped_steps=2),
        logged_sums={"loss_G/loss": 1.0},
        warned=["G inverts"],
        nonfinite_train=["epoch 4, step 40"],
        nonfinite_test=["epoch 4, step 39", "epoch 4, step 39"],
        validated=True,
        best_kid={"x2y": -0.01},
        best_kid_features="random",
        best_epoch={"x2y": 2},
        evaluations_since_best=1,
    )


def loaded(values):
    """Return the state that `from_dict` makes of `values` after JSON, or the text of its UserError."""
    try:
        return TrainState.from_dict(json.loads(json.dumps(values)))
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("state", [TrainState(), in_the_middle()])
def test_a_state_survives_json(state):
    again = loaded(state.to_dict())
    assert again == state and isinstance(again.train, PassState) and isinstance(again.test, PassState)


def test_no_field_of_the_example_has_its_default():
    for made, default in ((in_the_middle(), TrainState()), (in_the_middle().train, PassState())):
        for field in dataclasses.fields(made):
            assert getattr(made, field.name) != getattr(default, field.name)


def test_to_dict_returns_a_copy():
    state = in_the_middle()
    written = state.to_dict()
    state.train.sums["samples"] = 0
    state.warned.append("F inverts")
    assert written == in_the_middle().to_dict()


def fields():
    for part, cls in ((None, TrainState), ("train", PassState), ("test", PassState)):
        hints = typing.get_type_hints(cls)
        for field in dataclasses.fields(cls):
            kind = hints[field.name]
            yield part, field.name, typing.get_origin(kind) or kind


@pytest.mark.parametrize("part, name, kind", fields())
def test_missing_and_mistyped_fields_are_named(part, name, kind):
    def changed(change):
        values = in_the_middle().to_dict()
        change(values if part is None else values[part])
        return loaded(values)

    without = changed(lambda values: values.pop(name))
    if name in ADDED:
        default = getattr(TrainState(), name)
        assert without == dataclasses.replace(in_the_middle(), **{name: default})
    else:
        assert f"missing fields of a training state: '{name}'; expected a checkpoint of this version" in without
    wrong = [None, "1", True] + ([-1, -0.5] if kind in (int, float) else [1]) + ([1.5] if kind is int else [])
    wrong += [{}] if kind is list else [[]]
    for value in (value for value in wrong if type(value) is not kind or kind not in (bool, str)):
        text = changed(lambda values: values.update({name: value}))  # noqa: B023  called at once
        assert isinstance(text, str) and text.startswith(f"{name} is ") and "expected" in text and text.isprintable()


@pytest.mark.parametrize("part", [None, "train", "test"])
def test_unknown_fields_are_refused_by_name(part):
    values = in_the_middle().to_dict()
    (values if part is None else values[part]).update({"__class__": "os.system", "zz\n": 1})
    assert loaded(values) == (
        "unknown fields of a training state: '__class__', 'zz\\n'; expected a checkpoint of this version of the program"
    )


@pytest.mark.parametrize("values", [None, [], "epoch", 3, True])
def test_other_json_is_refused(values):
    assert f"TrainState is {values!r}, expected its fields" in loaded(values)


@pytest.mark.parametrize("part, name", [(None, "logged_sums"), (None, "best_kid"), ("train", "sums"), ("test", "sums")])
@pytest.mark.parametrize("value", ["1", None, True, [1], {}])
def test_sums_hold_numbers_only(part, name, value):
    values = in_the_middle().to_dict()
    (values if part is None else values[part])[name] = {"loss": value}
    assert re.fullmatch(f"{name} is .*, expected finite numbers", loaded(values))


@pytest.mark.parametrize("part, name, kind", [field for field in fields() if field[2] in (int, float, dict)])
@pytest.mark.parametrize("number", [10**30, 10**400, float("inf"), float("nan")])
def test_numbers_are_bounded(part, name, kind, number):
    values = in_the_middle().to_dict()
    if name not in ("train", "test"):
        (values if part is None else values[part])[name] = {"loss": number} if kind is dict else number
        refused = isinstance(loaded(values), str)
        assert refused or (kind is dict and number == 10**30)  # a loss may be large


def test_a_long_value_is_not_shown_whole():
    values = in_the_middle().to_dict()
    values["epoch"] = "9" * 10_000
    assert len(loaded(values)) < 200


def accepted_or_refused(values):
    try:
        state = TrainState.from_dict(values)
    except UserError:
        return
    assert all(type(n) is int and n >= 0 for n in (state.epoch, state.step, state.reshuffles, state.train.pairs_done))


@FUZZ
@given(JSON)
def test_any_json_is_a_state_or_refused(values):
    accepted_or_refused(values)


@FUZZ
@given(st.sampled_from([field[:2] for field in fields()]), JSON, st.booleans(), st.text(max_size=4))
def test_a_state_with_one_change_is_a_state_or_refused(field, value, rename, other):
    part, name = field
    values = in_the_middle().to_dict()
    inner = values if part is None else values[part]
    inner[other if rename else name] = value
    accepted_or_refused(values)


def test_next_epoch_resets_the_passes_and_keeps_the_rest():
    state = in_the_middle()
    state.next_epoch()
    kept = {"step": 40, "reshuffles": 1, "global_batch_size": 6, "log_bytes": 1234, "warned": ["G inverts"]}
    row = {
        name: getattr(in_the_middle(), name)
        for name in (
            *("nonfinite_train", "nonfinite_test", "validated"),
            *("best_kid", "best_kid_features", "best_epoch", "evaluations_since_best"),
        )
    }
    assert state == TrainState(epoch=4, **kept, **row)
    state.train.sums["samples"] = 1  # no two passes share their sums
    assert state.test.sums == {} and TrainState().train.sums == {}


def test_training_is_done_after_its_epochs_or_its_patience():
    state = TrainState(epoch=3, evaluations_since_best=2)
    assert (
        state.is_done(3) and not state.is_done(4) and state.is_done(4, patience=2) and not state.is_done(4, patience=3)
    )
