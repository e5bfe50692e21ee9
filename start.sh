#!/bin/bash
# Starts what ./deploy.sh built. Where ./stop.sh cut a re-embed off, it goes on behind its last checkpoint.
set -euo pipefail
cd "$(dirname "$0")"
source deploy/compose.sh

compose up --detach --no-build
echo "Memory: http://$(compose port sidecar 3010)   Dagster: http://$(compose port webserver 3000)"
token="in $(value_of ANAMNESIS_SECRETS)/settings/anamnesis_api_token"
[[ -z $(value_of ANAMNESIS_API_TOKEN) ]] || token="ANAMNESIS_API_TOKEN in .env"
echo "The token that the memory wants: $token"
