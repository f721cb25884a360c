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
"$venv/bin/ruff" format --check .
"$venv/bin/ruff" check .
exec "$venv/bin/python" -m pytest ${which[@]+"${which[@]}"} "$@"
