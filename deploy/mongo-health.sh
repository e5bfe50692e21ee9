#!/bin/sh
# Health check of MongoDB: is it a writable primary? Asks `hello` over the wire protocol in bash, some milliseconds;
# mongosh, which takes most of a second of a core to start, only where there is no bash.
#   https://www.mongodb.com/docs/manual/reference/mongodb-wire-protocol/  (OP_MSG)
#   https://www.mongodb.com/docs/manual/reference/command/hello/
set -eu
: "${MONGO_PORT:=27017}"

if ! command -v bash >/dev/null; then
  exec mongosh --quiet "mongodb://127.0.0.1:$MONGO_PORT/?directConnection=true&serverSelectionTimeoutMS=3000" \
    --eval 'quit(db.hello().isWritablePrimary ? 0 : 1)'
fi

exec bash -c '
  exec 3<>"/dev/tcp/127.0.0.1/$0"
  # Header: 52 bytes in all, request 1, no response to, opcode 2013. Body: no flags, one section of kind 0, and in it
  # the document {hello: 1, $db: "admin"} of 31 bytes.
  printf "\x34\0\0\0\x01\0\0\0\0\0\0\0\xdd\x07\0\0\0\0\0\0\0\x1f\0\0\0\x10hello\0\x01\0\0\0\x02\$db\0\x06\0\0\0admin\0\0" >&3
  # A true flag is byte 8, its name, zero, byte 1. Read from zero to zero, the name ends one piece and 1 begins the next.
  while IFS= read -r -t 3 -d "" piece <&3; do
    [[ ${was:-} == *isWritablePrimary && $piece == $'"'"'\x01'"'"'* ]] && exit 0
    was=$piece
  done
  exit 1
' "$MONGO_PORT"
