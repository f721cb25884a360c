#!/usr/bin/env bash
# Train with N workers on this machine, as if they were several machines. Makes the environment first, see setup.sh.
#   scripts/launch_local.sh 2 -- --dataset stripes --epochs 1     each train.py gets the flags after N (and --)
#   VENV=.venv          folder of the environment
#   GRACE=60            seconds for workers to save and exit after a signal to stop; then they are killed
# The workers share the GPUs of CUDA_VISIBLE_DEVICES, or all. Ctrl-C, SIGTERM, SIGHUP and SIGUSR1 reach each worker.
# The exit code is the first exit code of a worker that is not 0, or 128 + the number of a signal that this script
# received.
set -euo pipefail
root=$(CDPATH= cd "$(dirname "$0")/.." && pwd)
usage="usage: scripts/launch_local.sh N [--] [flags of train.py]"
fail() { echo "launch_local: $*" >&2; exit 2; }

case ${1:-} in
  -h | --help) echo "$usage"; exit 0 ;;
  [1-9] | [1-9][0-9]) count=$1 ;;
  *) fail "'${1:-}': expected a number of workers from 1 to 99; $usage" ;;
esac
shift
[ "${1:-}" != -- ] || shift
grace=${GRACE:-60}
case $grace in *[!0-9]*) fail "GRACE=$grace: expected a number of seconds" ;; esac

if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
  listed=${CUDA_VISIBLE_DEVICES%%,-*}  # CUDA ignores the devices from the first -1 on
  case $listed in -* | NoDevFiles | none | void) listed= ;; esac
  where="CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"
else
  listed=$(nvidia-smi -L 2>/dev/null | sed -n 's/^GPU \([0-9]*\):.*/\1/p' | paste -s -d , -) || listed=
  where="nvidia-smi"
fi
IFS=, read -r -a gpus <<<"$listed"
share=$((${#gpus[@]} / count))
[ $((share * count)) = ${#gpus[@]} ] || fail "$count workers: $where lists ${#gpus[@]} GPUs, expected a number that" \
  "$count divides: choose the GPUs with CUDA_VISIBLE_DEVICES=0,1 (for example; CUDA_VISIBLE_DEVICES= is none), or" \
  "another N"

"$root/scripts/setup.sh"
venv=${VENV:-.venv}
case $venv in /*) ;; *) venv=$root/$venv ;; esac  # as in setup.sh

# All ports are held at once, so that they differ; on all interfaces, because gRPC listens on them.
ports=$("$venv/bin/python" -c 'import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for each in held:
    each.bind(("", 0))
print(*[each.getsockname()[1] for each in held])' "$count")
addresses=$(printf '"127.0.0.1:%s", ' $ports)

worker() {  # its index, the flags
  export TF_CONFIG="{\"cluster\": {\"worker\": [${addresses%, }]}, \"task\": {\"type\": \"worker\", \"index\": $1}}"
  [ "$share" = 0 ] || CUDA_VISIBLE_DEVICES=$(IFS=,; echo "${gpus[*]:$(($1 * share)):$share}")
  [ "$share" = 0 ] || export CUDA_VISIBLE_DEVICES
  shift
  exec "$venv/bin/python" "$root/train.py" "$@"
}

forwarded= pids=() killer=
forward() {  # a signal, and the exit code of workers that it stops
  forwarded="$forwarded${2:+ $2}"
  kill -s "$1" ${pids[@]+"${pids[@]}"} 2>/dev/null || true
  if [ -n "${2:-}" ] && [ -z "$killer" ]; then
    kill_later &
    killer=$!
    disown "$killer"  # or bash may report that it was killed
  fi
}
kill_later() {
  trap '' HUP INT TERM USR1
  sleep "$grace" >/dev/null 2>&1  # must not hold the output of this script open
  echo "launch_local: killing the workers that are still there after $grace s" >&2
  kill -s KILL ${pids[@]+"${pids[@]}"} 2>/dev/null || true
}
trap 'forward HUP 129' HUP
trap 'forward INT 130' INT
trap 'forward TERM 143' TERM
trap 'forward USR1' USR1

# Job control gives each worker its own process group, so that Ctrl-C in a terminal does not reach the worker. It also
# keeps bash from ignoring SIGINT in background processes.
set -m
for ((i = 0; i < count; i++)); do
  [ -z "$forwarded" ] || break
  worker "$i" "$@" </dev/null &
  pids+=($!)
done
set +m  # or `wait` would return at once for a suspended worker
[ ${#pids[@]} != 0 ] || exit "${forwarded##* }"

result=0 stopped=
for pid in "${pids[@]}"; do
  while kill -s 0 "$pid" 2>/dev/null; do
    wait "$pid" || true  # a signal interrupts it
  done
  code= before=-
  until [ "$code" = "$before" ]; do  # because `wait` may first report an earlier signal
    before=$code code=0
    wait "$pid" || code=$?
  done
  case " $forwarded " in *" $code "*) stopped=${stopped:-$code} ;; esac
  [ "$result" != 0 ] || result=$code
done
[ -z "$killer" ] || kill -s KILL "$killer" 2>/dev/null || true
exit "${stopped:-$result}"
