#!/bin/sh
# Tries idle nodes, a job for each, and drains those that are at fault, with the reason:
#
#   SLURM_GPUS_PER_NODE=8 PREFLIGHT_DIR=/shared/preflight scripts/slurm_drain.sh node1 node2 ...
#   SLURM_RESERVATION=maintenance ...                   # in a reservation: srun reads these variables
#
# PREFLIGHT_DIR is shared with the nodes. A node that is not idle within PREFLIGHT_WAIT_S is left alone. Only a report
# that rejects the node drains it, and only where a second try finds the same: srun too exits with 1, where it could
# start nothing.
set -u
export PREFLIGHT_DIR="${PREFLIGHT_DIR:-$PWD/preflight-drain}"
umask 022 # --history reads no report that others may write
mkdir -p "$PREFLIGHT_DIR" || exit 3

look() {
  report=$PREFLIGHT_DIR/$1/$(date +%s).json
  mkdir -p "$PREFLIGHT_DIR/$1"
  rm -f "$report"
  srun --nodes=1 --ntasks=1 --nodelist="$1" --exclusive --immediate="${PREFLIGHT_WAIT_S:-30}" --cpu-bind=none \
    preflight check -v --accept --history "$PREFLIGHT_DIR/$1" --env-out "$PREFLIGHT_DIR/$1.env" \
    --report "$report" >"$PREFLIGHT_DIR/$1.txt" 2>&1
  code=$?
  reason=$(preflight render "$report" --format drain 2>/dev/null) || reason=
}

finding() { # what the first reason is about, and the check
  printf '%s\n' "$reason" | sed 's/^preflight node rejected: //' |
    awk '{ match($0, / \[[a-z0-9-]+\]/); print substr($0, 1, index($0, ": ") - 1) substr($0, RSTART, RLENGTH) }'
}

try() {
  look "$1"
  case $code:$reason in "1:preflight node rejected"*) first=$(finding) && look "$1" ;; *) first= ;; esac
  case $code:$reason in
    "0:preflight node accepted"*) [ -z "$first" ] && echo "$1: accepted" || echo "$1: left as it is, rejected only once: $first" ;;
    "1:preflight node rejected"*) drain "$1" ;;
    *) echo "$1: unknown, left as it is (exit code $code): ${reason:-$(tail -n 1 "$PREFLIGHT_DIR/$1.txt")}" ;;
  esac
}

drain() {
  [ "$(finding)" = "$first" ] || { echo "$1: left as it is, rejected for another reason each time: $reason"; return; }
  held=$(PREFLIGHT_SHARED="${PREFLIGHT_SHARED:-$PREFLIGHT_DIR/brake}" "$(dirname "$0")/slurm_brake.sh" "$reason" "$1") ||
    { echo "$1: $held: $reason"; return; }
  scontrol update "NodeName=$1" State=DRAIN "Reason=$reason" && echo "$1: drained: $reason"
}

for node; do try "$node" & done
wait
