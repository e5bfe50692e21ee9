#!/bin/bash
# Prints an .env for the user who calls it, with secrets of its own. See example.env for what each line means.
set -euo pipefail

random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }

socket=${DOCKER_SOCKET:-/var/run/docker.sock}
cat <<EOT
COMPOSE_PROJECT_NAME=anamnesis
ANAMNESIS_MACHINE=${ANAMNESIS_MACHINE:-$(uname -n)}
ANAMNESIS_USER_HOME=${ANAMNESIS_USER_HOME:-$HOME}
ANAMNESIS_UID=$(stat -c %u "${ANAMNESIS_USER_HOME:-$HOME}")
ANAMNESIS_GID=$(stat -c %g "${ANAMNESIS_USER_HOME:-$HOME}")
DOCKER_GID=$(stat -Lc %g "$socket")
ANAMNESIS_API_TOKEN=$(random)
POSTGRES_PASSWORD=$(random)
MONGO_PASSWORD=$(random)
ANAMNESIS_SECRETS=$PWD/secrets
EOT
