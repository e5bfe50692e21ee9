#!/bin/bash
# Ends everything in order; nothing stored is removed. First whoever launches runs, and the runs, each of which saves
# its checkpoint; then the databases they write to.
set -euo pipefail
cd "$(dirname "$0")"
source deploy/compose.sh

stop_runs() {
  local runs
  runs=$(docker ps --quiet --filter label=anamnesis=run --filter network=anamnesis)
  # shellcheck disable=SC2086 # one argument each
  [[ -z $runs ]] || docker stop -t 60 $runs
}

compose stop daemon &
stop_runs
wait $!
stop_runs  # those that were launched meanwhile
compose stop
