#!/bin/bash
# What a container of the image starts through: waits for what its role needs, then becomes the given command.
#   WAIT_FOR               services that have to accept connections first, as host:port separated by spaces
#   DAGSTER_POSTGRES_PASSWORD_FILE   a file with Dagster's password, for its configuration reads variables only
set -euo pipefail

accepts() {
  (exec 3<>"/dev/tcp/${1%:*}/${1##*:}") 2>/dev/null
}

for service in ${WAIT_FOR:-}; do
  for ((second = 0; ; second++)); do
    accepts "$service" && break
    if ((second >= 180)); then
      echo "entrypoint: nobody accepts connections on $service; is that service up?" >&2
      exit 1
    fi
    sleep 1
  done
done

if [[ -n ${DAGSTER_POSTGRES_PASSWORD_FILE:-} ]]; then
  DAGSTER_POSTGRES_PASSWORD=$(<"$DAGSTER_POSTGRES_PASSWORD_FILE")
  export DAGSTER_POSTGRES_PASSWORD
fi

exec "$@"
