"""Fixtures for the tests of the scores."""

import pytest

from cyclegan.evaluation import evaluator, features


@pytest.fixture(scope="package")
def extractor():
    """Return the extractor of random features, compiled once for all tests."""
    return features.make_extractor("random")


@pytest.fixture(autouse=True)
def reliable(monkeypatch):
    """Take scores of 2 images for reliable; return from how many images on they usually are."""
    usual = evaluator.RELIABLE
    monkeypatch.setattr(evaluator, "RELIABLE", 2)
    return usual
