#!/bin/sh
# The brake on drains: slurm_brake.sh REASON [NODE] exits with 0 if one more node may be drained for the check that the
# reason names, with 1 if not, and prints why. Within an hour at most 2 nodes, or 2% of the nodes, are drained for one check: what ends more
# at once is a new driver, a new image or a defect of preflight, and no broken node.
#
# It needs PREFLIGHT_SHARED, a folder that all nodes share and that only root can write. Without one it lets nobody be
# drained. slurm_health_check.sh notes each node there; that is how many there are.
shared=${PREFLIGHT_SHARED:-}
node=${2:-${SLURMD_NODENAME:-$(hostname -s)}}
# "... [gpu-copy]" of a check, "preflight probe: gpu-lost ..." of a probe
check=$(printf '%s\n' "$1" | sed -n -e 's/^[^[]*\[\([a-z0-9-]*\)\].*/\1/p' -e 't' -e 's/^preflight probe: \([a-z0-9-]*\).*/\1/p' | head -n 1)

held() {
  echo "preflight brake: $1; the node is kept"
  exit 1
}

[ -n "$check" ] || held "the reason names no check"
[ -n "$shared" ] || held "PREFLIGHT_SHARED names no folder that all nodes share"
mkdir -p "$shared/drains" "$shared/nodes" 2>/dev/null
nodes=$(find "$shared/nodes" -type f -mtime -7 2>/dev/null | wc -l)
most=$((nodes / 50))
[ "$most" -ge 2 ] || most=2

number=0
while [ "$number" -lt "$most" ]; do
  number=$((number + 1))
  slot=$shared/drains/$check.$number
  if [ -n "$(find "$slot" -maxdepth 0 -mmin +60 2>/dev/null)" ]; then
    mv "$slot" "$slot.$node.$$" 2>/dev/null && rm -rf "$slot.$node.$$" # one of those that try gets it
  fi
  # A folder can be made once: whoever makes it has the slot.
  mkdir "$slot" 2>/dev/null && { echo "$node" >"$slot/node" && exit 0; held "$slot can't be written"; }
  [ "$(cat "$slot/node" 2>/dev/null)" = "$node" ] && exit 0
done
[ -d "$shared/drains/$check.1" ] || held "$shared can't be written"
held "$most of $nodes nodes were drained for [$check] within an hour"
