from cyclegan.training.in_flight import InFlightCalls


def test_calls_are_inspected_oldest_first_and_two_may_wait():
    inspected = []
    calls = InFlightCalls(inspected.append)
    for call in "abcd":
        calls.add(call)
        calls.inspect_old()
    assert inspected == ["a", "b"]
    calls.inspect_all()
    assert inspected == ["a", "b", "c", "d"]


def test_the_host_starts_the_next_calls_before_it_inspects_one(fit, monkeypatch):
    events = []
    inspect = InFlightCalls._inspect_until

    def logged(self, left):
        before = len(self._calls)
        inspect(self, left)
        events.extend(["inspect"] * (before - len(self._calls)))

    monkeypatch.setattr(InFlightCalls, "_inspect_until", logged)
    fit(1, batch=1, steps=1, log_every=100, on_call=lambda split: split == "train" and events.append("call"))
    assert events[:7] == ["call"] * 3 + ["inspect", "call", "inspect", "call"]
    assert events.count("inspect") >= 7  # all of them, at the end of the epoch
