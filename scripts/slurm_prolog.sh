#!/bin/sh
# A Slurm prolog that reads this job's GPUs, within 10 s, and starts nothing on them (slurm.conf: docs/cluster.md).
#
# Exit 0 lets the job run. A prolog that exits with anything else drains the node and requeues the job (held, unless
# SchedulerParameters has nohold_on_prolog_fail), whoever is to blame. So only this does it: probe found a fault of a GPU
# itself, twice the same. What could not be looked at is noted in the node's comment and lets the job start.
# Active checks are slurm_epilog.sh's and slurm_drain.sh's.
set -u
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH" LC_ALL=C COLUMNS=250
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
node=${SLURMD_NODENAME:-$(hostname -s)}
look_s=${PREFLIGHT_LOOK_S:-4} # twice, and a second for each to end: 10 s in all

mkdir -p "$dir" && cd "$dir" || exit 0
# The job's own GPUs alone: on a shared node the others may be a neighbour's, and a job without GPUs has none to be read.
# PREFLIGHT_WHOLE_NODE=1: whole nodes are given away, and Slurm does not know of their GPUs (no GRES).
if [ -n "${SLURM_JOB_GPUS:-}" ]; then
  set -- --gpus "$SLURM_JOB_GPUS"
elif [ "${PREFLIGHT_WHOLE_NODE:-0}" != 1 ]; then
  echo "not applicable: the job has no GPUs" >prolog.txt
  exit 0
fi

look() {
  timeout -k 1 "$look_s" preflight probe -v "$@" --deadline $((look_s - 1)) >prolog.txt 2>&1
  code=$?
  # Limits and settings as slurmd has them are not the job's: class gpu alone counts.
  found=$(sed -n 's/^ *FAIL  *\(.*\) \[gpu\]$/\1/p' prolog.txt | tr -c '\nA-Za-z0-9 ._:/()-' '_' | head -n 3 | paste -s -d ';' -)
}

look "$@"
case $code:$found in
  0:* | 1:) exit 0 ;;
  1:*) ;;
  *) scontrol update "NodeName=$node" "Comment=preflight could not look: exit code $code"
     exit 0 ;;
esac
first=$found
look "$@"
[ "$code:$found" = "1:$first" ] || exit 0 # not seen again: no evidence
case ${PREFLIGHT_SHADOW:-0} in 0 | "") ;; *)
  scontrol update "NodeName=$node" "Comment=SHADOW preflight probe: $found"
  exit 0 ;;
esac
scontrol update "NodeName=$node" State=DRAIN "Reason=preflight probe: $found"
exit 1
