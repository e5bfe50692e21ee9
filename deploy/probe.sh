#!/bin/bash
# Health check of a container: does the service answer? Bash alone, some milliseconds: a probe that started Python would
# cost more than the idle service.
#   probe.sh tcp HOST PORT               somebody accepts connections
#   probe.sh http HOST PORT PATH         GET is answered with 200
#   probe.sh daemons HOST PORT           Dagster's webserver finds every daemon alive
set -euo pipefail

kind=$1 host=$2 port=$3 path=${4:-/graphql}

exec 3<>"/dev/tcp/$host/$port"
case $kind in
  tcp)
    ;;
  http)
    printf 'GET %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n' "$path" >&3
    read -r -t 4 _ status _ <&3
    [[ $status == 200 ]]
    ;;
  daemons)
    question='{"query":"{instance{daemonHealth{allDaemonStatuses{required healthy}}}}"}'
    printf 'POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s' \
      "$path" "${#question}" "$question" >&3
    IFS= read -r -t 4 -d '' answer <&3 || true
    answer=${answer//[[:space:]]/}
    [[ $answer == *'"healthy":true'* && ! $answer =~ '"required":true,"healthy":'(false|null) ]]
    ;;
esac
