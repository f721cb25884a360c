#!/usr/bin/env bash
# Train on an embedded dataset, 1 to 3.5 minutes on 2 CPU cores, and score the result.
# Makes the environment first, see setup.sh. A second call resumes.
set -euo pipefail
cd "$(dirname "$0")/.."
if [ $# -gt 0 ]; then
  echo "demo.sh: received $*; expected no arguments: python train.py --preset demo takes flags of training" >&2
  exit 2
fi
venv=${VENV:-$PWD/.venv}
epochs=5
scripts/setup.sh
"$venv/bin/python" train.py --preset demo --epochs $epochs --devices 1
echo
"$venv/bin/python" scripts/score_stripes.py runs/demo
echo
echo "The samples:  $PWD/runs/demo/samples/epoch_$(printf %03d $epochs).png"
echo "The report:   $PWD/runs/demo/index.html"
echo "The curves:   $venv/bin/tensorboard --logdir $PWD/runs/demo"
