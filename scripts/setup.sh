#!/usr/bin/env bash
# Make the environment of the other scripts: a virtual environment with the packages of requirements.txt, or of
# requirements-gpu.txt if nvidia-smi finds a GPU. Does nothing if it exists already.
#   PYTHON=python3.12   interpreter (default: the first that works, see below)
#   VENV=.venv          folder of the environment
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv}
if [ $# -gt 0 ]; then
  sed -n '2,5s/^# \?//p' scripts/setup.sh
  case $1 in -h | --help) exit 0 ;; esac
  exit 2
fi
fail() { echo "setup: $*" >&2; exit 2; }

oldest=9 newest=13  # versions of Python 3 with packages for this machine
system=$(uname -sm)
case $system in
  "Linux aarch64") oldest=12 ;;  # without packages of TensorFlow Addons
  Linux*) ;;
  "Darwin arm64") ;;
  "Darwin x86_64") newest=11 ;;  # TensorFlow ended its Intel packages with 2.16
  *) fail "$system: expected Linux or macOS (on Windows, use WSL 2)" ;;
esac

version_of() { "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null; }
works() {
  "$1" -c "import sys, venv, ensurepip; sys.exit(not (3, $oldest) <= sys.version_info[:2] <= (3, $newest))" \
    >/dev/null 2>&1
}

requirements=requirements.txt
capability=
if [ "${system%% *}" = Linux ] && [ -n "$(nvidia-smi -L 2>/dev/null | grep '^GPU')" ]; then
  requirements=requirements-gpu.txt
  capability=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | grep -E '^[0-9]+\.[0-9]+$' \
    | sort -V | tail -n 1) || true
fi

if [ -e "$venv" ]; then
  found=$(version_of "$venv/bin/python") || fail "$venv holds no working Python: remove it and call this again"
  if [ -n "${PYTHON:-}" ]; then
    asked=$(version_of "$PYTHON") || fail "PYTHON=$PYTHON does not run: expected Python 3.$oldest to 3.$newest"
    [ "$asked" = "$found" ] \
      || fail "$venv holds Python $found, PYTHON=$PYTHON is $asked: remove $venv, or name another with" \
        "VENV=.venv-$asked"
  fi
else
  if [ -n "${PYTHON:-}" ]; then
    works "$PYTHON" || fail "PYTHON=$PYTHON ($(version_of "$PYTHON" || echo "does not run")): expected Python" \
      "3.$oldest to 3.$newest with the venv module (on Debian and Ubuntu: apt install python3-venv)"
    python=$PYTHON
  else
    pyenv=${PYENV_ROOT:-$HOME/.pyenv}/versions
    set -- python3 python3.11 python3.12 python3.10 python3.13 python3.9 "$pyenv"/3.*/bin/python
    # The TensorFlow for Python 3.12 and later is built for the newer GPUs (8.9 is Ada, 9.0 is Hopper).
    if [ -n "$capability" ] && [ "$(printf '%s\n' 8.9 "$capability" | sort -V | head -n 1)" = 8.9 ]; then
      set -- python3.12 python3.13 "$pyenv"/3.1[23]*/bin/python "$@"
    fi
    python=
    for name; do
      if works "$name"; then python=$name; break; fi
    done
    [ -n "$python" ] || fail "no Python 3.$oldest to 3.$newest with the venv module found ($(version_of python3 \
      | sed 's/^/python3 is /' || true)): install one, or name it with PYTHON=/path/to/python3.12"
  fi
  echo "Making $venv with $python (Python $(version_of "$python"))"
  "$python" -m venv "$venv"
fi

stamp="$venv/.installed"
wanted="$requirements $(cat requirements.txt requirements-gpu.txt | cksum)"
conflicts=$("$venv/bin/python" -m pip --disable-pip-version-check check 2>&1 || true)  # such as another NumPy
if [ "$(cat "$stamp" 2>/dev/null)" != "$wanted" ] || [[ $conflicts == *tensorflow*" has requirement "* ]]; then
  echo "Installing $requirements into $venv (once; a download of $( [ $requirements = requirements.txt ] \
    && echo "about 0.7 GB" || echo "about 4 GB" ))"
  while sleep 15 >/dev/null 2>&1; do echo "  $SECONDS s, still installing"; done &  # pip itself prints hundreds of lines
  trap "kill $! 2>/dev/null || true" EXIT
  # The pip of an older Python takes hours to resolve the versions.
  { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade pip \
    && "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r "$requirements"; } \
    || fail "pip could not install $requirements (its message is above): is there a network? Then call this again"
  echo "$wanted" >"$stamp"
fi
