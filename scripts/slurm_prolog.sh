#!/bin/sh
# A Slurm prolog that reads this job's GPUs, within 10 s, and starts nothing on them (slurm.conf: docs/clusters.md).
#
# Exit 0 lets the job run. Slurm drains the node and requeues the job for any other exit code, whoever is to blame. So
# one thing alone leads to exit 1: `preflight probe` found a fault of class gpu twice, and the same one, and
# slurm_brake.sh beside this file lets one more node be drained for it (PREFLIGHT_SHARED). Whatever else happens, a wrong
# setting of this script included, lets the job start.
# Slurm's commands do not belong into a prolog: what there is to say goes into a spool, and slurm_health_check.sh tells
# it to Slurm. Active checks are slurm_epilog.sh's and slurm_drain.sh's.
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH" LC_ALL=C
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
spool=$dir/spool
page=$dir/prolog.${SLURM_JOB_ID:-0}.$$
REJECTED=42 # what look_twice ends with; nothing else does

case ${PREFLIGHT_LOOK_S:-} in # whole seconds for one look; there are two, and each has a second to end
  [2-9] | [1-9][0-9]) look_s=$PREFLIGHT_LOOK_S ;;
  *) look_s=4 ;;
esac

spool() { # note|drain TEXT: replaces what was said before
  mkdir -p "$spool" && printf '%s\n' "$2" >"$spool/.prolog.$$" && mv "$spool/.prolog.$$" "$spool/prolog.$1"
}

look() { # sets code, and found: the line that probe prints of failures of class gpu, and of nothing else
  # Limits and settings as slurmd has them are not the job's: class gpu alone counts.
  timeout -k 1 "$look_s" preflight probe --reason gpu "$@" --deadline $((look_s - 1)) >"$page" 2>/dev/null
  code=$?
  found=$(grep '^preflight probe: ' "$page" | head -n 1)
  rm -f "$page"
}

look_twice() {
  look "$@"
  case $code:$found in
    0:*) rm -f "$spool/prolog.note"; return ;;
    1:?*) ;;
    124:* | 137:*) spool note "preflight inconclusive: no answer within $look_s s"; return ;;
    127:*) spool note "preflight inconclusive: it is not in PREFLIGHT_PATH"; return ;;
    *) spool note "preflight inconclusive: exit code $code"; return ;;
  esac
  first=$found
  look "$@"
  [ "$code:$found" = "1:$first" ] || return # not seen again: no evidence
  case ${PREFLIGHT_SHADOW:-0} in
    0 | "")
      spool drain "$found"
      # What the brake holds is asked again by slurm_health_check.sh, and the job starts.
      "$(dirname "$0")/slurm_brake.sh" "$found" >/dev/null 2>&1 && exit "$REJECTED" ;;
    *) spool note "SHADOW $found" ;;
  esac
}

# The job's own GPUs alone: on a shared node the others may be a neighbour's, and a job without GPUs has none to be read.
# PREFLIGHT_WHOLE_NODE=1: whole nodes are given away, and Slurm does not know of their GPUs (no GRES).
if [ -n "${SLURM_JOB_GPUS:-}" ]; then
  set -- --gpus "$SLURM_JOB_GPUS"
elif [ "${PREFLIGHT_WHOLE_NODE:-0}" = 1 ]; then
  set --
else
  exit 0
fi
mkdir -p "$dir" || exit 0
(look_twice "$@")
[ $? = "$REJECTED" ] && exit 1
exit 0
