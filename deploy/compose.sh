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

# The value of a variable in .env, which is no shell script; Compose takes it in quotes as well, and leaves out a comment
# behind it. Empty if it is not there.
value_of() {
  local value=
  [[ ! -f .env ]] || value=$(sed -n "s/^$1=//p" .env | tail -n 1)
  if [[ $value != [\"\']* && $value == *[[:space:]]#* ]]; then
    value=${value%%[[:space:]]#*}
    value=${value%"${value##*[![:space:]]}"}
  fi
  if [[ $value =~ ^\"(.*)\"$ || $value =~ ^\'(.*)\'$ ]]; then
    value=${BASH_REMATCH[1]}
  fi
  printf '%s\n' "$value"
}

# What names of networks and volumes begin with.
project() {
  local name
  name=${COMPOSE_PROJECT_NAME:-$(value_of COMPOSE_PROJECT_NAME)}
  printf '%s\n' "${name:-anamnesis}"
}
