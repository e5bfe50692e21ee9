#!/bin/bash
# Makes the database of POSTGRES_USER, POSTGRES_PASSWORD_FILE and POSTGRES_DB once, then serves it.
set -euo pipefail

if [[ ! -s $PGDATA/PG_VERSION ]]; then
  initdb --username="$POSTGRES_USER" --pwfile="$POSTGRES_PASSWORD_FILE" --auth=scram-sha-256 >/dev/null
  echo 'host all all all scram-sha-256' >> "$PGDATA/pg_hba.conf"
  printf 'CREATE DATABASE "%s"' "$POSTGRES_DB" | postgres --single -j postgres >/dev/null
fi
exec postgres -c listen_addresses='*' -c unix_socket_directories=/tmp
