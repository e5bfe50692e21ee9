#!/bin/bash
# Starts what ./deploy.sh built. Where ./stop.sh cut a re-embed off, it goes on behind its last checkpoint.
set -euo pipefail
cd "$(dirname "$0")"
source deploy/compose.sh

# Compose's own variables cannot hold one another in every version.
port=${ANAMNESIS_DAGSTER_PORT:-$(value_of ANAMNESIS_DAGSTER_PORT)}
link=${ANAMNESIS_DAGSTER_LINK:-$(value_of ANAMNESIS_DAGSTER_LINK)}
export ANAMNESIS_DAGSTER_LINK=${link:-http://127.0.0.1:${port:-3000}}
compose up --detach --no-build
echo "Memory: http://$(compose port sidecar 3010)   Dagster: http://$(compose port webserver 3000)"
echo "The token that the memory wants: $(value_of ANAMNESIS_SECRETS)/settings/anamnesis_api_token"
