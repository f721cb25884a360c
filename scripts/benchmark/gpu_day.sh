#!/usr/bin/env bash
# All forms of the step on a GPU, the most important ones first: a table of each group, and its rows as JSON.
#   scripts/benchmark/gpu_day.sh [FOLDER]     folder of the JSON files (default: gpu_day)
#   BUDGET=480                                seconds for all groups together
# Each group is a process of its own: TensorFlow reads some settings only once, and a failure costs no other group.
set -uo pipefail
cd "$(dirname "$0")/../.."
out=${1:-gpu_day} budget=${BUDGET:-480}
gpus=$(nvidia-smi -L 2>/dev/null | grep -c '^GPU')
[ "$gpus" -gt 0 ] || { echo "gpu_day: nvidia-smi sees no GPU; try scripts/benchmark --census" >&2; exit 2; }
mkdir -p "$out" || exit 2

group() {  # NAME FLAGS...: time a group, in at most a third of the budget, because XLA may compile for minutes
  local name=$1 limit=$((budget - SECONDS))
  shift
  [ $limit -le 0 ] && { echo "$name: no time left"; return; }
  [ $limit -gt $((budget / 3)) ] && limit=$((budget / 3))
  echo "# $name"
  timeout $limit "${PYTHON:-.venv/bin/python}" scripts/benchmark --size 256 --runs 20 --warmup 3 --precision bfloat16 \
    "$@" --json "$out/$name.json" || echo "$name: stopped or failed after $SECONDS s in all"
}

group default
group batch-4 --batch 4
group xla --xla off on
[ "$gpus" -gt 1 ] && group all-gpus --no_plain --batch "$gpus" --replicas 1 "$gpus"
group float32-tf32 --precision float32
NVIDIA_TF32_OVERRIDE=0 group float32 --precision float32
group deterministic --deterministic
TF_USE_CUDNN_BATCHNORM_SPATIAL_PERSISTENT=1 group persistent --precision bfloat16 float16
group 512-px --size 512
group 128-px --size 128
group float16 --precision bfloat16 float16
group xla-batch-4 --no_plain --batch 4 --xla off on
group 512-px-batch-4 --size 512 --batch 4
group 10-steps-per-call --no_plain --steps_per_call 1 10
