#!/usr/bin/env bash
# Checks the style and runs the tests. Makes the environment first, see setup.sh.
#   scripts/test.sh            all but the slow ones
#   scripts/test.sh --slow     all
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
which=(-m "not slow")
if [ "${1:-}" = --slow ]; then
  which=()
  shift
fi
scripts/setup.sh
# PyTorch, for the tests that compare with it, where pip knows a place for builds without CUDA (those with it are 3 GB). Without what
# it asks for but its import does not need: a setuptools that TensorBoard 2.15 warns about.
"$venv/bin/python" -c 'import torch' 2>/dev/null \
  || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps torch==2.13.0+cpu filelock==4.2.11 \
    jinja2==3.1.6 networkx==3.6.1 sympy==1.14.0 mpmath==1.3.0 >/dev/null 2>&1 \
  || echo "No PyTorch for the CPU here: tests that compare with it are left out"
"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
exec "$venv/bin/python" -m pytest ${which[@]+"${which[@]}"} "$@"
