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
refuse() {
  echo "$1" >&2
  exit 1
}
if [[ ! -f .env ]]; then
  home=${ANAMNESIS_USER_HOME:-$HOME}
  [[ $(stat -c %u "$home") != 0 ]] ||
    refuse "The containers run as the owner of $home, which must not be root: ANAMNESIS_USER_HOME=~somebody ./deploy.sh"
  ./deploy/write-env.sh > .env.new || { rm .env.new; exit 1; }
  mv .env.new .env
  echo "Wrote .env: whose logs are read. deploy/example.env tells what else it may say."
fi
home=$(value_of ANAMNESIS_USER_HOME) uid=$(value_of ANAMNESIS_UID) gid=$(value_of ANAMNESIS_GID)
image=$(value_of ANAMNESIS_IMAGE) secrets=$(value_of ANAMNESIS_SECRETS) model=$(value_of ANAMNESIS_DEFAULT_MODEL)

[[ -n $home && -n $secrets ]] || refuse "ANAMNESIS_USER_HOME and ANAMNESIS_SECRETS have to be set in .env: deploy/example.env"
for id in "ANAMNESIS_UID=$uid" "ANAMNESIS_GID=$gid"; do
  [[ $id =~ =[1-9][0-9]*$ ]] || refuse "$id in .env: it has to be a number, and not 0, which is root's"
done
# What is mounted has to be there: Docker would make it, for root.
for folder in "$home/.claude" "$home/.claude/projects" "$home/.ssh"; do
  [[ -d $folder ]] || install -d -m 700 -o "$uid" -g "$gid" "$folder"
done
./deploy/write-secrets.sh "$secrets" "$uid" "$gid"
chmod a+r deploy/mongo-health.sh || true  # mounted, too, and read by whomever MongoDB runs as

docker build --build-arg "UID=$uid" --build-arg "GID=$gid" ${model:+--build-arg "MODEL=$model"} "$@" --tag "${image:-anamnesis:latest}" .
$then
