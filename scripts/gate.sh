#!/bin/sh
# A gate for a new or repaired node: exit 0 takes it in, 1 sends it to repair, anything else leaves it where it is.
#
#   scripts/gate.sh [DIRECTORY] [OPTIONS OF preflight check ...]
#
# Only 0 and 1 are answers. Whatever else happens (no GPU free, a missing library, a deadline, preflight missing or
# killed) says nothing about the node: it is neither taken in nor drained. An older answer never stays in its place.
set -u

out=${1:-/var/lib/preflight}
[ $# -gt 0 ] && shift
mkdir -p "$out" && cd "$out" || exit 3
rm -f answer

preflight check --accept --env-out preflight.env --report preflight-report.json \
  --also html=report.html --also junit=junit.xml --also prometheus=preflight.prom --also drain=drain.txt "$@"
code=$?

case $code in
  0) echo accept > answer ;;
  1) echo reject > answer
     echo "gate: rejected: $(cat drain.txt)" >&2 ;;
  *) echo unknown > answer
     echo "gate: no answer (exit code $code): look at $out/report.html and try again" >&2
     [ "$code" -ge 2 ] || code=3 ;;
esac
exit "$code"
