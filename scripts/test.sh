#!/usr/bin/env bash
# Check format, style and types, and run the tests. Makes the environment first, see setup.sh.
#   scripts/test.sh         the quick tests: every module, a training that is killed and resumed
#   scripts/test.sh --all   all tests
# Further arguments go to pytest.
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
scripts/setup.sh
pip() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
cmp -s requirements-test.txt "$venv/.installed-test" \
  || { pip -r requirements-test.txt && cp requirements-test.txt "$venv/.installed-test"; }

# Optional packages; the tests that need a missing one are left out.
optional() { # optional DISTRIBUTION REQUIREMENTS...: install them unless the distribution is there
  "$venv/bin/python" -c "import importlib.metadata as m; m.version('$1')" 2>/dev/null \
    || pip -c requirements.txt "${@:2}" >/dev/null 2>&1 || echo "No $1 here: tests that need it are left out"
}
optional torch torch==2.13.0+cpu  # the build with CUDA has 3 GB
optional pydicom 'pydicom==2.4.4 ; python_version < "3.10"' 'pydicom==3.0.2 ; python_version >= "3.10"'
optional av 'av>=15.1'
optional nibabel 'nibabel==5.3.3 ; python_version < "3.10"' 'nibabel==5.4.2 ; python_version >= "3.10"'
optional rasterio 'rasterio>=1.4'
optional wandb 'wandb>=0.25'
optional mlflow-skinny 'mlflow-skinny>=3.1'
optional fastapi 'fastapi>=0.115' 'uvicorn>=0.30'

"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
types=$(mktemp)
"$venv/bin/mypy" >"$types" 2>&1 &  # beside the tests
mypy=$!
trap 'kill $mypy 2>/dev/null || true; rm -f "$types"' EXIT
result=0
"$venv/bin/python" -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder "$@" \
  || result=$?
wait $mypy || result=1
cat "$types"
exit $result
