#!/usr/bin/env bash
# Build the documentation as a site, from the same Markdown files: open build/site/index.html. A broken link is an error.
#   PYTHON=python3.12     interpreter, 3.10 or newer (default: python3)
#   VENV=.venv-docs       folder of its environment
set -euo pipefail
cd "$(dirname "$0")/.."
venv=${VENV:-.venv-docs}
[ -e "$venv" ] || "${PYTHON:-python3}" -m venv "$venv"
if ! cmp -s requirements-docs.txt "$venv/.installed"; then
  "$venv/bin/python" -m pip install --quiet --disable-pip-version-check -r requirements-docs.txt
  cp requirements-docs.txt "$venv/.installed"
fi
rm -rf build/pages
mkdir -p build/pages/runs
cp -r docs *.md LICENSE CITATION.cff build/pages  # in the folders of the clone, so that the links between them hold
cp runs/README.md build/pages/runs
export NO_MKDOCS_2_WARNING=1
"$venv/bin/mkdocs" build --strict 2> >(grep -v "^INFO" >&2)
echo "The site: $PWD/build/site/index.html"
