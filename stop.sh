#!/bin/bash
# Ends everything in order; nothing stored is removed. First whoever launches runs, and the runs, each of which saves
# its checkpoint; then the databases they write to.
set -euo pipefail
cd "$(dirname "$0")"
source deploy/compose.sh

# A run may end by itself between the two commands; its container is gone then, which `docker stop` takes for an error.
stop_runs() {
  local runs
  for _ in {1..10}; do
    runs=$(docker ps --quiet --filter label=anamnesis=run --filter "network=$(project)_dagster")
    [[ -n $runs ]] || return 0
    # shellcheck disable=SC2086 # one argument each
    docker stop -t 60 $runs || sleep 0.5
  done
  echo "stop.sh: these runs do not end, and lose what came after their last checkpoint:" $runs >&2
}

compose stop daemon &
stop_runs
wait $!
stop_runs  # those that were launched meanwhile
compose stop
