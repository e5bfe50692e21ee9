#!/bin/bash
# Builds the image and starts the whole system; with --no-start as the first argument it only builds. Further arguments
# go to `docker build`, e.g. --build-arg TORCH_INDEX=URL.
set -euo pipefail
cd "$(dirname "$0")"
source deploy/compose.sh
umask 077

then=./start.sh
if [[ ${1:-} == --no-start ]]; then
  then=true
  shift
fi
refuse_root() {
  echo "The containers run as the owner of $1, which must not be root: name another home and its owner ($2)" >&2
  exit 1
}
if [[ ! -f .env ]]; then
  home=${ANAMNESIS_USER_HOME:-$HOME}
  [[ $(stat -c %u "$home") != 0 ]] || refuse_root "$home" "ANAMNESIS_USER_HOME=~somebody ./deploy.sh"
  ./deploy/write-env.sh > .env
  echo "Wrote .env: whose logs are read, and the secrets. deploy/example.env tells what else it may say."
fi
home=$(value_of ANAMNESIS_USER_HOME) uid=$(value_of ANAMNESIS_UID) gid=$(value_of ANAMNESIS_GID)
image=$(value_of ANAMNESIS_IMAGE)

[[ $uid != 0 ]] || refuse_root "$home" "in .env"
# What is mounted has to be there: Docker would make it, for root.
for folder in "$home/.claude" "$home/.claude/projects" "$home/.ssh" "$(value_of ANAMNESIS_SECRETS)"; do
  [[ -d $folder ]] || install -d -m 700 -o "$uid" -g "$gid" "$folder"
done
chmod a+r deploy/mongo-health.sh || true  # mounted, too, and read by whomever MongoDB runs as

docker build --build-arg "UID=$uid" --build-arg "GID=$gid" "$@" --tag "${image:-anamnesis:latest}" .
$then
