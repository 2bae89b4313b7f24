#!/bin/sh
# A Slurm epilog that tries the node after a job that failed, or once a day (slurm.conf: docs/clusters.md). Only for nodes
# that one job has to itself (PartitionName=... OverSubscribe=EXCLUSIVE): it runs collectives on all GPUs.
#
# It asks for a drain by evidence: the check rejects the node twice, for the same finding; what comes once in a while is
# counted across the reports of 90 days. Anything else leaves the node in service. Exit 0 always: what else an epilog returns drains
# the node. Slurm's commands do not belong into an epilog: the reason goes into a spool, and slurm_health_check.sh drains.
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH"
dir=${PREFLIGHT_DIR:-/var/lib/preflight}

whole() { # VALUE DEFAULT: a whole number of one to five digits, else the default
  case $1 in "" | 0* | *[!0-9]* | ??????*) echo "$2" ;; *) echo "$1" ;; esac
}
deadline_s=$(whole "${PREFLIGHT_DEADLINE_S:-}" 120)
every_h=$(whole "${PREFLIGHT_EVERY_H:-}" 24)

try() { # prints the first finding that rejects the node: what it is about, and the check
  rm -f drain.txt || return # what is there afterwards is this run's
  timeout -k 10 $((deadline_s + 30)) preflight check --accept --profile quick --history reports \
    --deadline "$deadline_s" --env-out preflight.env --report "reports/$(date +%s).json" --also drain=drain.txt \
    >epilog.log 2>&1
  [ $? = 1 ] && sed -n 's/^preflight node rejected: \(.*\)/\1/p' drain.txt |
    awk '{ match($0, / \[[a-z0-9-]+\]/); print substr($0, 1, index($0, ": ") - 1) substr($0, RSTART, RLENGTH) }'
}

try_twice() {
  umask 022
  mkdir -p "$dir/spool" "$dir/reports" && cd "$dir" || return
  find reports -name '*.json' -mtime +90 -delete
  tried_today=$(find reports -name '*.json' -mmin "-$((60 * every_h))")
  [ "${SLURM_JOB_EXIT_CODE:-1}" = 0 ] && [ -n "$tried_today" ] && return
  first=$(try)
  [ -n "$first" ] && [ "$(try)" = "$first" ] && cp drain.txt spool/.epilog && mv spool/.epilog spool/epilog.drain
}

(try_twice)
exit 0
