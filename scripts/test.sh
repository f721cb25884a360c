#!/usr/bin/env bash
# Check format, style and types, and run the tests. Makes the environment first, see setup.sh.
#   scripts/test.sh          the quick tests: every module, a training that is killed and resumed
#   scripts/test.sh --all    all tests
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
scripts/setup.sh
cmp -s requirements-test.txt "$venv/.installed-test" \
  || { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-test.txt \
    && cp requirements-test.txt "$venv/.installed-test"; }
# PyTorch, for the tests that compare with it, where pip finds a build without CUDA (builds with CUDA have 3 GB).
"$venv/bin/python" -c 'import torch' 2>/dev/null \
  || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps torch==2.13.0+cpu filelock==4.2.11 \
    jinja2==3.1.6 networkx==3.6.1 sympy==1.14.0 mpmath==1.3.0 >/dev/null 2>&1 \
  || echo "No PyTorch for the CPU here: tests that compare with it are left out"
# pydicom, which is optional, for the tests of DICOM files.
"$venv/bin/python" -c 'import pydicom' 2>/dev/null \
  || "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps \
    'pydicom==2.4.4 ; python_version < "3.10"' 'pydicom==3.0.2 ; python_version >= "3.10"' >/dev/null 2>&1 \
  || echo "No pydicom here: tests of DICOM files are left out"
# The trackers, which are optional, for their test; the versions that fit the packages that are here.
"$venv/bin/python" -c 'from importlib.metadata import version as v; v("wandb"), v("mlflow-skinny")' 2>/dev/null \
  || { "$venv/bin/python" -m pip freeze --exclude-editable 2>/dev/null | grep -v ' @ ' >"$venv/.constraints" \
    && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -c "$venv/.constraints" \
      'wandb>=0.25' 'mlflow-skinny>=3.1' >/dev/null 2>&1; } \
  || echo "No wandb and MLflow here: their test is left out"
"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
types=$(mktemp)
"$venv/bin/mypy" >"$types" 2>&1 &  # beside the tests
mypy=$!
trap 'kill $mypy 2>/dev/null || true; rm -f "$types"' EXIT
result=0
"$venv/bin/python" -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@" || result=$?
wait $mypy || result=1
cat "$types"
exit $result
