#!/bin/bash
# Read by the scripts beside docker-compose.yml.

# Whichever Compose there is, told by .env: it takes a variable of the shell before the same one in .env, so whatever
# docker-compose.yml asks for is taken out, but not Docker's own.
compose() (
  # shellcheck disable=SC2046 # one name each
  unset -v $(grep -o '[$]{[A-Z_]*' docker-compose.yml | tr -d '{$' | grep -v '^COMPOSE_')
  # Compose's own variables cannot hold one another in every version.
  link=$(value_of ANAMNESIS_DAGSTER_LINK) port=$(value_of ANAMNESIS_DAGSTER_PORT)
  export ANAMNESIS_DAGSTER_LINK=${link:-http://127.0.0.1:${port:-3000}}
  link=$(value_of ANAMNESIS_SERVICE_LINK) port=$(value_of ANAMNESIS_PORT)
  export ANAMNESIS_SERVICE_LINK=${link:-http://127.0.0.1:${port:-3010}}
  if docker compose version >/dev/null 2>&1; then
    docker compose "$@"
  else
    docker-compose "$@"
  fi
)

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
