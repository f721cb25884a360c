#!/usr/bin/env bash
# Start a worker on each host; adapt the next lines.
set -euo pipefail
hosts=(10.0.0.1 10.0.0.2 10.0.0.3)  # the first one is the chief
folder=/shared/cyclegan
flags=(--dataset cycle_gan/horse2zebra --output_dir runs/horse2zebra)

workers=$(printf '"%s:20000", ' "${hosts[@]}")
for index in "${!hosts[@]}"; do
  TF_CONFIG="{\"cluster\": {\"worker\": [${workers%, }]}, \"task\": {\"type\": \"worker\", \"index\": $index}}"
  ssh "${hosts[index]}" "cd $folder || exit
    TF_CONFIG='$TF_CONFIG' nohup .venv/bin/python train.py ${flags[*]@Q} </dev/null >worker_$index.log 2>&1 &
    echo \$! >worker_$index.pid"
done
