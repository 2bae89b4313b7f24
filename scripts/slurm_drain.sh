#!/bin/sh
# Tries idle nodes, a job for each, and drains those that are at fault, with the reason:
#
#   SLURM_GPUS_PER_NODE=8 PREFLIGHT_DIR=/shared/preflight scripts/slurm_drain.sh node1 node2 ...
#   SLURM_RESERVATION=maintenance ...                   # in a reservation: srun reads these variables
#
# PREFLIGHT_DIR is shared with the nodes. A node that is not idle within PREFLIGHT_WAIT_S is left alone. Only a report
# that rejects the node drains it: srun too exits with 1, where it could start nothing.
set -u
export PREFLIGHT_DIR="${PREFLIGHT_DIR:-$PWD/preflight-drain}"
mkdir -p "$PREFLIGHT_DIR" || exit 3

try() {
  report=$PREFLIGHT_DIR/$1.json
  rm -f "$report"
  srun --nodes=1 --ntasks=1 --nodelist="$1" --exclusive --immediate="${PREFLIGHT_WAIT_S:-30}" --cpu-bind=none \
    preflight check -v --accept --env-out "$PREFLIGHT_DIR/$1.env" --report "$report" >"$PREFLIGHT_DIR/$1.txt" 2>&1
  code=$?
  reason=$(preflight render "$report" --format drain 2>/dev/null) || reason=
  case $code:$reason in
    "0:preflight node accepted"*) echo "$1: accepted" ;;
    "1:preflight node rejected"*) scontrol update "NodeName=$1" State=DRAIN "Reason=$reason" && echo "$1: drained: $reason" ;;
    *) echo "$1: unknown, left as it is (exit code $code): ${reason:-$(tail -n 1 "$PREFLIGHT_DIR/$1.txt")}" ;;
  esac
}

for node; do try "$node" & done
wait
