#!/bin/sh
# A gate for a new or repaired node: exit 0 takes it in, 1 sends it to repair, anything else leaves it where it is.
#
#   scripts/gate.sh [DIRECTORY] [OPTIONS OF preflight check ...]
#
# Only 0 and 1 are answers, and only together with the reason that this run wrote: Python exits with 1 too where it can't
# even start. Whatever else happens (no GPU free, a missing library, a deadline, preflight missing or killed) says nothing
# about the node: it is neither taken in nor drained. An older answer never stays in its place.
set -u

out=${1:-/var/lib/preflight}
[ $# -gt 0 ] && shift
mkdir -p "$out" && cd "$out" || exit 3
rm -f answer drain.txt preflight-report.json || exit 3 # what is there afterwards is this run's

preflight check --accept --env-out preflight.env --report preflight-report.json \
  --also junit=junit.xml --also prometheus=preflight.prom --also drain=drain.txt "$@"
code=$?

reason=$(cat drain.txt 2>/dev/null) || reason=
case $code:$reason in
  "0:preflight node accepted"*) echo accept > answer ;;
  "1:preflight node rejected"*)
     echo reject > answer
     echo "gate: rejected: $reason" >&2 ;;
  *) echo unknown > answer
     echo "gate: no answer (exit code $code): see preflight render $out/preflight-report.json, and try again" >&2
     [ "$code" -ge 2 ] || code=3 ;; # a 0 or 1 without this run's reason
esac
exit "$code"
