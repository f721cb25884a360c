import dataclasses
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cyclegan.checkpointing.train_state import LATER, PassState, TrainState
from cyclegan.errors import UserError

FUZZ = settings(max_examples=200, deadline=None, derandomize=True, database=None)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda values: st.lists(values, max_size=4) | st.dictionaries(st.text(max_size=8), values, max_size=4),
    max_leaves=8,
)


def in_the_middle():
    """A place in the middle of an epoch, in which no field has its default."""
    return TrainState(
        epoch=3,
        step=40,
        draw=1,
        global_batch=6,
        log_bytes=1234,
        train=PassState(pairs=12, sums={"loss_G/loss": 1.5, "samples": 12}, seconds=2.5, skipped=1),
        test=PassState(pairs=6, sums={"samples": 6.0}, seconds=0.5, skipped=2),
        logged={"loss_G/loss": 1.0},
        warned=["G inverts"],
        bad_train=["epoch 4, step 40"],
        bad_test=["epoch 4, step 39", "epoch 4, step 39"],
        tested=True,
        best={"x2y": -0.01},
        best_by="random",
    )


def loaded(values):
    """What `from_dict` makes of `values` after JSON, or the text of its UserError."""
    try:
        return TrainState.from_dict(json.loads(json.dumps(values)))
    except UserError as error:
        return str(error)


@pytest.mark.parametrize("place", [TrainState(), in_the_middle()])
def test_a_place_comes_back_from_json(place):
    again = loaded(place.to_dict())
    assert again == place and isinstance(again.train, PassState) and isinstance(again.test, PassState)


def test_no_field_of_the_example_has_its_default():
    for made, default in ((in_the_middle(), TrainState()), (in_the_middle().train, PassState())):
        for field in dataclasses.fields(made):
            assert getattr(made, field.name) != getattr(default, field.name)


def test_what_was_written_does_not_change_with_the_place():
    place = in_the_middle()
    written = place.to_dict()
    place.train.sums["samples"] = 0
    place.warned.append("F inverts")
    assert written == in_the_middle().to_dict()


def fields():
    for part, cls in ((None, TrainState), ("train", PassState), ("test", PassState)):
        for field in dataclasses.fields(cls):
            yield part, field.name, field.type


@pytest.mark.parametrize("part, name, kind", fields())
def test_each_field_that_is_missing_or_of_another_type_is_named(part, name, kind):
    def changed(change):
        values = in_the_middle().to_dict()
        change(values if part is None else values[part])
        return loaded(values)

    without = changed(lambda values: values.pop(name))
    if name in LATER:
        assert without == dataclasses.replace(in_the_middle(), **{name: getattr(TrainState(), name)})
    else:
        assert f"missing fields of a place in training: '{name}'" in without
    wrong = [None, "1", True] + ([-1, -0.5] if kind in (int, float) else [1]) + ([1.5] if kind is int else [])
    wrong += [{}] if kind is list else [[]]
    for value in (value for value in wrong if type(value) is not kind or kind not in (bool, str)):
        text = changed(lambda values: values.update({name: value}))  # noqa: B023  called at once
        assert isinstance(text, str) and text.startswith(f"{name} is ") and "expected" in text and text.isprintable()


def test_a_place_from_before_there_were_scores_goes_on_without_any():
    values = in_the_middle().to_dict()
    del values["best"], values["best_by"]
    place = loaded(values)
    assert (place.best, place.best_by) == ({}, "") and place.epoch == 3


@pytest.mark.parametrize("part", [None, "train", "test"])
def test_unknown_fields_are_refused_by_name(part):
    values = in_the_middle().to_dict()
    (values if part is None else values[part]).update({"__class__": "os.system", "zz\n": 1})
    assert loaded(values) == "unknown fields of a place in training: '__class__', 'zz\\n'"


@pytest.mark.parametrize("values", [None, [], "epoch", 3, True])
def test_what_is_no_place_at_all_is_refused(values):
    assert f"progress is {values!r}, expected its fields" in loaded(values)


@pytest.mark.parametrize("part, name", [(None, "logged"), (None, "best"), ("train", "sums"), ("test", "sums")])
@pytest.mark.parametrize("value", ["1", None, True, [1], {}])
def test_sums_hold_numbers_only(part, name, value):
    values = in_the_middle().to_dict()
    (values if part is None else values[part])[name] = {"loss": value}
    assert loaded(values) == f"{name} holds something else than finite numbers"


def test_a_long_value_is_not_shown_whole():
    values = in_the_middle().to_dict()
    values["epoch"] = "9" * 10_000
    assert len(loaded(values)) < 200


def accepted_or_refused(values):
    try:
        place = TrainState.from_dict(values)
    except UserError:
        return
    assert all(type(n) is int and n >= 0 for n in (place.epoch, place.step, place.draw, place.train.pairs))


@FUZZ
@given(JSON)
def test_any_json_is_a_place_or_refused(values):
    accepted_or_refused(values)


@FUZZ
@given(st.sampled_from([field[:2] for field in fields()]), JSON, st.booleans(), st.text(max_size=4))
def test_a_place_with_one_thing_changed_is_a_place_or_refused(field, value, rename, other):
    part, name = field
    values = in_the_middle().to_dict()
    inner = values if part is None else values[part]
    inner[other if rename else name] = value
    accepted_or_refused(values)


def test_nothing_is_said_of_the_same_batch_or_a_new_run():
    assert in_the_middle().batch_warnings(3, 6) == in_the_middle().batch_warnings(2, 6) == []
    assert TrainState().batch_warnings(2, 8) == []


@pytest.mark.parametrize(
    "replicas, batch, steps, advice",
    [
        (3, 3, "more", "--batch_size 2"),
        (3, 12, "fewer", "--batch_size 2"),
        (1, 1, "more", "--batch_size 6"),
        (6, 12, "fewer", "--batch_size 1"),
        (4, 4, "more", "--devices 3 --batch_size 2"),
        (8, 8, "fewer", "--devices 6 --batch_size 1"),
    ],
)
def test_what_another_batch_means_and_how_to_get_the_same(replicas, batch, steps, advice):
    (text,) = in_the_middle().batch_warnings(replicas, batch)
    assert text.startswith(f"the global batch is {batch} pairs instead of 6 from here on")
    assert f"become {steps}, " in text and text.endswith(f"For the same batch use {advice}")


def test_the_next_epoch_begins_with_nothing_done_and_keeps_the_rest():
    place = in_the_middle()
    place.next_epoch()
    kept = {"step": 40, "draw": 1, "global_batch": 6, "log_bytes": 1234, "warned": ["G inverts"]}
    row = {name: getattr(in_the_middle(), name) for name in ("bad_train", "bad_test", "tested", "best", "best_by")}
    assert place == TrainState(epoch=4, **kept, **row)
    place.train.sums["samples"] = 1  # no two passes share their sums
    assert place.test.sums == {} and TrainState().train.sums == {}
