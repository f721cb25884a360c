import pytest


@pytest.fixture
def torch():
    """Return PyTorch, or skip the test without it."""
    return pytest.importorskip("torch", reason="PyTorch is not installed")
