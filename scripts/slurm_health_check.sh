#!/bin/sh
# Slurm's HealthCheckProgram (slurm.conf: HealthCheckProgram=/etc/slurm/slurm_health_check.sh, HealthCheckInterval=300).
#
# It runs beside jobs, and slurmd kills it after 60 s: so it reads facts and starts nothing. What it finds itself drains
# nobody: facts as slurmd's environment shows them are a reason to look, and stand in the node's comment until they are
# gone. It also tells Slurm what slurm_prolog.sh and slurm_epilog.sh left in the spool: notes join the comment, and a
# rejection drains the node with its reason, if slurm_brake.sh beside this file lets it. Comments and reasons of others
# are left alone.
export PATH="${PREFLIGHT_PATH:-/opt/preflight/bin}:$PATH" LC_ALL=C
dir=${PREFLIGHT_DIR:-/var/lib/preflight}
node=${SLURMD_NODENAME:-$(hostname -s)}
MOST_MIN=1440 # an older rejection says nothing of the node as it is

mkdir -p "$dir/spool" && cd "$dir" || exit 0

shown() { # Comment|Reason of the node, as Slurm has it
  scontrol show node "$node" 2>/dev/null | sed -n "s/^ *$1=//p" | head -n 1
}

"$(dirname "$0")/slurm_brake.sh" "" "$node" >/dev/null 2>&1 # notes this node
rm -f spool/brake.note
for asked in spool/*.drain; do
  [ -f "$asked" ] || continue
  if [ -n "$(find "$asked" -mmin "-$MOST_MIN")" ]; then
    case $(shown Reason) in
      "" | [Pp]reflight* | [Pp]rolog* | [Ee]pilog* | none*) # ours, or Slurm's own word for a prolog that failed
        reason=$(head -n 1 "$asked")
        held=$("$(dirname "$0")/slurm_brake.sh" "$reason") || { # asked again at the next check
          printf '%s: %s\n' "${held:-preflight brake: slurm_brake.sh is missing; the node is kept}" "$reason" >spool/brake.note
          continue
        }
        scontrol update "NodeName=$node" State=DRAIN "Reason=$reason" || continue ;;
    esac
  fi
  rm -f "$asked"
done

timeout -k 5 40 preflight probe --reason gpu,host,fabric,container,configuration --deadline 20 >probe.new 2>/dev/null
code=$?
found=$(head -n 1 probe.new)
case $code:$found in
  0:*) told= ;;
  "1:preflight probe: "*) told=$found ;; # Python exits with 1 too where it can't start, and finds nothing
  124:* | 137:*) told="preflight inconclusive: no answer within 40 s" ;;
  *) told="preflight inconclusive: exit code $code" ;;
esac
told=$({ [ -z "$told" ] || echo "$told"; cat spool/*.note 2>/dev/null; } | sort -u | head -n 3 | paste -s -d ';' -)
[ "$told" = "$(cat comment.txt 2>/dev/null)" ] && exit 0 # the controller hears of changes only
case $(shown Comment) in
  "" | preflight* | "SHADOW preflight"* | "(null)") scontrol update "NodeName=$node" "Comment=$told" && echo "$told" >comment.txt ;;
esac
exit 0
