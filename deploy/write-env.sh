#!/bin/bash
# Prints an .env for the user who calls it. See example.env for what each line means.
set -euo pipefail

home=${ANAMNESIS_USER_HOME:-$HOME}
socket=${DOCKER_SOCKET:-/var/run/docker.sock}
if [[ ! -S $socket ]]; then
  echo "$socket is no socket: is Docker running? If its socket is elsewhere: DOCKER_SOCKET=PATH ./deploy.sh" >&2
  exit 1
fi
# Before anything is printed: in a here-document a command that fails would end nothing.
uid=$(stat -c %u "$home") gid=$(stat -c %g "$home") docker_gid=$(stat -Lc %g "$socket")
cat <<EOT
COMPOSE_PROJECT_NAME=anamnesis
ANAMNESIS_MACHINE=${ANAMNESIS_MACHINE:-$(uname -n)}
ANAMNESIS_USER_HOME=$home
ANAMNESIS_UID=$uid
ANAMNESIS_GID=$gid
DOCKER_SOCKET=$socket
DOCKER_GID=$docker_gid
ANAMNESIS_SECRETS=$PWD/secrets
EOT
