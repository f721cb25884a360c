"""Reading of state dicts that PyTorch has saved."""

from __future__ import annotations

import re
import warnings
from types import ModuleType

import numpy as np

from cyclegan.errors import UserError

SAFE_VERSION = (2, 6)  # older versions can execute code of a file in spite of weights_only=True (CVE-2025-32434)
INSTALL = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
EXPECTED = "expected a network's state_dict() that torch.save wrote"

StateDict = dict[str, np.ndarray]


def load_state_dict(path: str) -> StateDict:
    """Return the tensors in a file of `torch.save` by name, as float32. Nothing in the file is executed.

    Both the zip format since PyTorch 1.6 and the older one are read. DataParallel's prefix "module." is dropped.

    Raises:
        UserError: PyTorch is missing or too old, the file can't be read or is damaged, or it holds something else.
    """
    torch = _import_torch()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about formats that are refused anyway
            return _to_arrays(torch, torch.load(path, map_location="cpu", weights_only=True))
    except UserError as error:
        raise UserError(f"{path}: {error}; {EXPECTED}") from None
    except OSError as error:
        raise UserError(f"{path} can't be read ({error.strerror or error}); {EXPECTED}") from error
    except Exception as error:  # a damaged pickle or archive may raise anything
        raise UserError(f"{path}: {_reason(error)}; {EXPECTED}") from error


def _import_torch() -> ModuleType:
    try:
        import torch
    except ImportError as error:
        raise UserError(
            f"PyTorch, which reads these files, can't be imported ({error}); expected a build for the CPU: {INSTALL}"
        ) from error
    version = tuple(map(int, re.findall(r"\d+", torch.__version__)[:2]))
    if version < SAFE_VERSION:
        raise UserError(
            f"PyTorch {torch.__version__} can execute code that a file holds; expected 2.6 or newer: {INSTALL}"
        )
    return torch


def _to_arrays(torch: ModuleType, content: object) -> StateDict:
    if not isinstance(content, dict):
        raise UserError(f"it holds {type(content).__name__}, not a dict of tensors")
    for name, value in content.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise UserError(f"its {name!r:.80} is {type(value).__name__}, not a tensor")
    return {name.removeprefix("module."): value.detach().to(torch.float32).numpy() for name, value in content.items()}


def _reason(error: Exception) -> str:
    """Return a short reason why PyTorch refuses a file; PyTorch's own message advises to execute the file's content."""
    text = str(error)
    if refused := re.search(r"GLOBAL ([\w.]{0,80}\w)", text):
        return f"it asks for {refused[1]}, which no state dict needs"
    if "weights_only" in text:
        return "it is no file of PyTorch, or holds more than tensors"
    return f"it is no file of PyTorch, or damaged ({repr(error)[:100]})"
