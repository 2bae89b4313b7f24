#!/bin/sh
# A Slurm prolog (slurm.conf: Prolog=/etc/slurm/preflight_prolog.sh, PrologFlags=Alloc) that drains a node which fails.
#
# Exit 0 lets the job run. A prolog that exits with anything else drains the node and requeues the job, whoever is to
# blame; so only a proven fault of the node does that here: exit code 1 of --accept and the reason that this run wrote
# (Python exits with 1 too where it can't start). What could not be looked at is noted in the node's comment and lets the
# job start.
set -u
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH"
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
node=${SLURMD_NODENAME:-$(hostname -s)}

mkdir -p "$dir" && cd "$dir" || exit 0
rm -f drain.txt preflight-report.json || exit 0 # what is there afterwards is this run's
# The job's own GPUs alone: on a shared node the others may be a neighbour's. Without GPUs in the job: the whole node.
[ -n "${SLURM_JOB_GPUS:-}" ] && set -- --gpus "$SLURM_JOB_GPUS"
# Slurm gives a prolog PrologEpilogTimeout seconds (the default is none); ours must end before it.
preflight check "$@" --accept --profile quick --deadline "${PREFLIGHT_DEADLINE_S:-60}" --env-out preflight.env \
  --report preflight-report.json --also drain=drain.txt >prolog.log 2>&1
code=$?

reason=$(cat drain.txt 2>/dev/null) || reason=
case $code:$reason in
  0:*) exit 0 ;;
  "1:preflight node rejected"*)
     scontrol update "NodeName=$node" State=DRAIN "Reason=$reason"
     exit 1 ;;
  *) scontrol update "NodeName=$node" "Comment=preflight could not look: exit code $code"
     exit 0 ;;
esac
