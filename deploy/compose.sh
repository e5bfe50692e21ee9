#!/bin/bash
# Read by the scripts beside docker-compose.yml.

# Whichever Compose there is.
compose() {
  if docker compose version >/dev/null 2>&1; then
    docker compose "$@"
  else
    docker-compose "$@"
  fi
}

# The value of a variable in .env, which is no shell script.
value_of() {
  sed -n "s/^$1=//p" .env | tail -n 1
}
