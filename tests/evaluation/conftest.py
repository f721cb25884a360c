"""Fixtures for the tests of the scores."""

import pytest

from cyclegan.evaluation import features


@pytest.fixture(scope="package")
def extractor():
    """Return the extractor of random features, compiled once for all tests."""
    return features.make_extractor("random")
