#!/bin/sh
# Slurm's HealthCheckProgram (slurm.conf: HealthCheckProgram=/etc/slurm/slurm_health_check.sh, HealthCheckInterval=300).
#
# It runs beside jobs, and slurmd kills it after 60 s: so it reads facts and starts nothing. It drains nobody, whatever
# it finds: facts as slurmd's environment shows them are a reason to look, and slurm_prolog.sh or slurm_drain.sh, which
# try the node while it is idle, drain it. What was found stands in the node's comment until it is gone.
set -u
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH" LC_ALL=C COLUMNS=120
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
node=${SLURMD_NODENAME:-$(hostname -s)}

mkdir -p "$dir" && cd "$dir" || exit 0
preflight probe -v --deadline 20 >probe.new 2>&1
code=$?
mv probe.new probe.txt

found=$(sed -n 's/^ *FAIL *//p' probe.txt | head -n 1 | tr -c '\nA-Za-z0-9 ._:/()[]-' '_')
case $code:$found in
  0:*) told= ;;
  1:?*) told="preflight probe: $found" ;; # Python exits with 1 too where it can't start, and finds nothing
  *) told="preflight could not look: exit code $code" ;;
esac
[ "$told" = "$(cat comment.txt 2>/dev/null)" ] && exit 0 # the controller hears of changes only
scontrol update "NodeName=$node" "Comment=$told" && echo "$told" >comment.txt
exit 0
