#!/bin/sh
# A Slurm epilog that tries the node after a job that failed, or once a day (slurm.conf: docs/cluster.md). Only for nodes
# that one job has to itself (PartitionName=... OverSubscribe=EXCLUSIVE): it runs collectives on all GPUs.
#
# It drains by evidence: the check rejects the node twice, for the same finding; what comes once in a while is counted in
# history.jsonl. Anything else leaves the node in service. Exit 0 always: what else an epilog returns drains the node.
set -u
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH"
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
node=${SLURMD_NODENAME:-$(hostname -s)}

mkdir -p "$dir" && cd "$dir" || exit 0
tried_today=$(find preflight-report.json -mmin "-$((60 * ${PREFLIGHT_EVERY_H:-24}))" 2>/dev/null)
[ "${SLURM_JOB_EXIT_CODE:-1}" = 0 ] && [ -n "$tried_today" ] && exit 0

try() { # prints the first finding that rejects the node: what it is about, and the check
  rm -f drain.txt preflight-report.json || return # what is there afterwards is this run's
  preflight check --accept --profile quick --history history.jsonl --deadline "${PREFLIGHT_DEADLINE_S:-120}" \
    --env-out preflight.env --report preflight-report.json --also drain=drain.txt >epilog.log 2>&1
  [ $? = 1 ] && sed -n 's/^preflight node rejected: \(.*\)/\1/p' drain.txt |
    awk '{ match($0, / \[[a-z0-9-]+\]/); print substr($0, 1, index($0, ": ") - 1) substr($0, RSTART, RLENGTH) }'
}

first=$(try)
[ -n "$first" ] && [ "$(try)" = "$first" ] || exit 0
scontrol update "NodeName=$node" State=DRAIN "Reason=$(cat drain.txt)"
exit 0
