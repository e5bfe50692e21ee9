#!/bin/bash
# Health check of a container: does the service answer? Bash alone, some milliseconds: a probe that started Python would
# cost more than the idle service.
#   probe.sh grpc HOST PORT              Dagster's code server answers that it serves
#   probe.sh http HOST PORT PATH         GET is answered with 200
#   probe.sh daemons HOST PORT           Dagster's webserver finds every daemon alive; its guard wants the token, if there is one
set -euo pipefail

kind=$1 host=$2 port=$3 path=${4:-/graphql}

exec 3<>"/dev/tcp/$host/$port"
case $kind in
  grpc)
    # https://github.com/grpc/grpc/blob/master/doc/health-checking.md, by HTTP/2 (RFC 9113): its preface; SETTINGS, empty;
    # HEADERS of stream 1, 75 bytes that RFC 7541 packs (POST, http, and four in full); DATA of 17 bytes, which end the
    # question {service: "DagsterApi"}.
    printf 'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0' >&3
    printf '\0\0\x4b\x01\x04\0\0\0\x01\x83\x86\x04\x1c/grpc.health.v1.Health/Check\x01\x09localhost' >&3
    printf '\x0f\x10\x10application/grpc\0\x02te\x08trailers' >&3
    printf '\0\0\x11\0\x01\0\0\0\x01\0\0\0\0\x0c\x0a\x0aDagsterApi' >&3
    # {status: SERVING} is two bytes behind their length. Read from zero to zero, that is one piece.
    while IFS= read -r -t 4 -d '' piece <&3; do
      [[ $piece == $'\x02\x08\x01' ]] && exit 0
    done
    exit 1
    ;;
  http)
    printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$path" >&3
    read -r -t 4 _ status _ <&3
    [[ $status == 200 ]]
    ;;
  daemons)
    question='{"query":"{instance{daemonHealth{allDaemonStatuses{required healthy}}}}"}'
    file=/run/secrets/anamnesis_api_token token=${ANAMNESIS_API_TOKEN:-}
    [[ -n $token || ! -r $file ]] || token=$(<"$file")
    printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n%s\r\n%s' \
      "$path" "${#question}" "${token:+Authorization: Bearer $token$'\r\n'}" "$question" >&3
    IFS= read -r -t 4 -d '' answer <&3 || true
    answer=${answer//[[:space:]]/}
    [[ $answer == *'"healthy":true'* && ! $answer =~ '"required":true,"healthy":'(false|null) ]]
    ;;
esac
