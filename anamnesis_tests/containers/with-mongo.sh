#!/bin/bash
# Starts the compose file's MongoDB beside any that is in use, runs a command with ANAMNESIS_TEST_MONGO_URI, and removes
# the server with all it held: with-mongo.sh COMMAND [ARGUMENT...]
set -euo pipefail
cd "$(dirname "$0")/../.."
source deploy/compose.sh

here=anamnesis_tests/containers
secrets=$(mktemp -d)
mkdir "$secrets/databases"
echo only-for-tests > "$secrets/databases/mongo_password"
# The server reads both as a user of its own, whatever the umask here.
chmod a+rx "$secrets" "$secrets/databases"
chmod a+r "$secrets/databases/mongo_password" deploy/mongo-health.sh
{ cat "$here/mongo.env"; echo "ANAMNESIS_SECRETS=$secrets"; } > "$secrets/env"
stack() {
  compose --env-file "$secrets/env" -f docker-compose.yml -f "$here/compose.mongo.yml" "$@"
}
trap 'stack down --volumes --timeout 10; rm -r "$secrets"' EXIT

stack up --detach mongo
mongo=$(stack ps --quiet mongo)
for ((waited = 0; ; waited += 2)); do
  state=$(docker inspect --format '{{.State.Health.Status}}' "$mongo")
  [[ $state == healthy ]] && break
  if ((waited >= 300)); then
    echo "MongoDB is $state after $waited s; its last lines:" >&2
    docker logs --tail 20 "$mongo" >&2
    exit 1
  fi
  sleep 2
done
export ANAMNESIS_TEST_MONGO_URI="mongodb://anamnesis:only-for-tests@127.0.0.1:5439/?directConnection=true"
"$@"
