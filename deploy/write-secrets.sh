#!/bin/bash
# Makes the secrets that a folder does not have: write-secrets.sh FOLDER UID GID. What is there stays, so passwords of
# one's own, of whatever characters, are put there before.
#   settings/    settings of ours, each in a file that is named for it, readable for the user of the image
#   databases/   one password in a file, which is mounted alone: readable for whomever a database runs as, since who else is
#                on this machine cannot enter the folder
set -euo pipefail
folder=$1 uid=$2 gid=$3

# Its standard input becomes the file.
write() { install -o "$uid" -g "$gid" -m "$1" /dev/stdin "$2"; }
random() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
percent_encoded() { printf %s "$1" | od -An -v -tx1 | tr -d ' \n' | sed 's/../%&/g'; }

for part in "$folder" "$folder/settings" "$folder/databases"; do
  [[ -d $part ]] || install -d -m 700 -o "$uid" -g "$gid" "$part"
done
for name in mongo postgres; do
  file=$folder/databases/${name}_password
  [[ -e $file ]] || random | write 644 "$file"
  if [[ ! -s $file ]]; then
    echo "$file is empty: write a password into it, or remove it to have one made" >&2
    exit 1
  fi
  chmod a+r "$file"
done
[[ -e $folder/settings/anamnesis_api_token ]] || random | write 600 "$folder/settings/anamnesis_api_token"
uri=$folder/settings/anamnesis_mongo_uri
if [[ ! -e $uri ]]; then
  password=$(percent_encoded "$(<"$folder/databases/mongo_password")")
  echo "mongodb://anamnesis:${password}@mongo:27017/?directConnection=true" | write 600 "$uri"
fi
