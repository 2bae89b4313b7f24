#!/bin/sh
# The brake on drains: slurm_brake.sh REASON [NODE] exits with 0 if one more node may be drained for the check that the
# reason names, with 1 if not, and prints why. Within an hour at most 2 nodes, or 2% of the nodes, are drained for one
# check: what rejects more at once is a new driver, a new image or a defect of preflight, and no broken node.
#
# It needs PREFLIGHT_SHARED, a folder that all nodes share and that only root can write: from the environment, or a line
# PREFLIGHT_SHARED=/some/folder in preflight.conf beside this file. Without one it lets no node be drained.
# slurm_health_check.sh calls it without a reason: so each node is noted there, and that is how many there are.
shared=${PREFLIGHT_SHARED:-$(sed -n 's/^PREFLIGHT_SHARED=//p' "$(dirname "$0")/preflight.conf" 2>/dev/null | tail -n 1)}
node=${2:-${SLURMD_NODENAME:-$(hostname -s)}}
# "... [gpu-copy]" of a check, "preflight probe: gpu-lost ..." of a probe
check=$(printf '%s\n' "$1" | sed -n -e 's/^[^[]*\[\([a-z0-9-]*\)\].*/\1/p' -e 't' \
  -e 's/^preflight probe: \([a-z0-9-]*\).*/\1/p' | head -n 1)

held() {
  echo "preflight brake: $1; the node is kept"
  exit 1
}

[ -n "$shared" ] || held "PREFLIGHT_SHARED names no folder that all nodes share"
mkdir -p "$shared/drains" "$shared/nodes" 2>/dev/null && : >"$shared/nodes/$node"
[ -n "$check" ] || held "the reason names no check"
nodes=$(find "$shared/nodes" -type f -mtime -7 2>/dev/null | wc -l)
most=$((nodes / 50))
[ "$most" -ge 2 ] || most=2

hour=$(date -u +%Y%m%d%H)
recent() { find "$shared/drains" -mindepth 1 -maxdepth 1 -name "$check.*" -mmin -60 "$@" 2>/dev/null; }
find "$shared/drains" -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf {} + 2>/dev/null
recent -exec cat {}/node \; | grep -qxF -- "$node" && exit 0 # it is drained already
before=$(recent ! -name "$check.$hour.*" | wc -l)
number=0
while [ "$number" -lt $((most - before)) ]; do
  number=$((number + 1))
  slot=$shared/drains/$check.$hour.$number
  # A folder can be made once: whoever makes it may drain.
  mkdir "$slot" 2>/dev/null && { echo "$node" >"$slot/node" && exit 0; held "$slot can't be written"; }
done
[ -n "$(recent)" ] || held "$shared can't be written"
held "$most of $nodes nodes were drained for [$check] within an hour"
