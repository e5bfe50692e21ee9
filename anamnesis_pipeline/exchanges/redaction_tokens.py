"""Credentials that their own form gives away: the prefix that a service begins them with, and their length. Pure.

Those that detect-secrets lacks, or knows in part. Lengths are the least that the service hands out.
"""

import re

TOKENS: tuple[tuple[str, str], ...] = (
    ("anthropic", r"sk-ant-[A-Za-z0-9_\-]{20,}"),
    ("jwt", r"eyJ[A-Za-z0-9_\-]{10,}\.eyJ[A-Za-z0-9_\-]{10,}"),
    ("openrouter", r"sk-or-v1-[0-9a-f]{40,}"),
    ("api-key", r"sk-(?:proj-|svcacct-|admin-)?[A-Za-z0-9_]{24,}"),
    ("google", r"AIza[A-Za-z0-9_\-]{35}"),
    ("google-oauth", r"GOCSPX-[A-Za-z0-9_\-]{28}"),
    ("google-oauth", r"ya29\.[A-Za-z0-9_\-]{30,}"),
    ("huggingface", r"(?:hf|api_org)_[A-Za-z0-9]{30,}"),
    ("github", r"github_pat_[A-Za-z0-9_]{36,}"),
    ("github", r"gh[opusr]_[A-Za-z0-9]{36,}"),
    ("npm", r"npm_[A-Za-z0-9]{36}"),
    ("slack", r"xox[abeprs]-[A-Za-z0-9\-]{20,}"),
    ("slack", r"xapp-\d-[A-Za-z0-9\-]{20,}"),
    ("stripe", r"(?:[rs]k_(?:live|test)_|whsec_)[A-Za-z0-9]{24,}"),
    ("digitalocean", r"do[opr]_v1_[0-9a-f]{64}"),
    ("databricks", r"dapi[0-9a-f]{32}"),
    ("netlify", r"nfp_[A-Za-z0-9]{36,}"),
    ("shopify", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    ("vault", r"hv[sbr]\.[A-Za-z0-9_\-]{24,}"),
    ("xai", r"xai-[A-Za-z0-9]{40,}"),
    ("fly", r"FlyV1 fm[0-9]_[A-Za-z0-9+/=_,\-]{40,}"),
    ("fly", r"fm(?:1[ar]|2)_[A-Za-z0-9+/]{100,}"),
    ("fly", r"fo1_[A-Za-z0-9_\-]{43}"),
    ("1password", r"ops_eyJ[A-Za-z0-9_\-]{40,}"),
    ("1password", r"A3-[A-Z0-9]{6}-(?:[A-Z0-9]{6}-[A-Z0-9]{5}|[A-Z0-9]{11})-[A-Z0-9]{5}-[A-Z0-9]{5}-[A-Z0-9]{5}"),
    ("age", r"AGE-SECRET-KEY-1[0-9A-Z]{50,}"),
    ("linear", r"lin_(?:api|oauth)_[A-Za-z0-9]{32,}"),
    ("groq", r"gsk_[A-Za-z0-9]{40,}"),
    ("replicate", r"r8_[A-Za-z0-9]{37,}"),
    ("grafana", r"gl(?:sa|c)_[A-Za-z0-9_+/=]{32,}"),
    ("grafana", r"eyJrIjoi[A-Za-z0-9+/]{60,}"),
    ("sentry", r"sntr(?:ys|yu)_[A-Za-z0-9_+/=]{40,}"),
    ("newrelic", r"NR(?:AK|II)-[A-Za-z0-9\-]{27,}"),
    ("tailscale", r"tskey-[a-z]+-[A-Za-z0-9]{8,}-[A-Za-z0-9]{16,}"),
    ("atlassian", r"AT[AC]TT3xFf[A-Za-z0-9_\-=]{40,}"),
    ("supabase", r"sbp_[0-9a-f]{40}"),
    ("supabase", r"sb_secret_[A-Za-z0-9_\-]{20,}"),
    ("docker", r"dckr_(?:pat|oat)_[A-Za-z0-9_\-]{27,}"),
    ("heroku", r"HRKU-[A-Za-z0-9_\-]{36,}"),
    ("square", r"sq0atp-[A-Za-z0-9_\-]{22,}"),
    ("square", r"EAAA[A-Za-z0-9_\-]{60}"),
    ("firebase", r"AAAA[A-Za-z0-9_\-]{7}:APA91b[A-Za-z0-9_\-]{120,}"),
    ("private-key", r"LS0tLS1CRUdJTi(?:BSU0Eg|BFQyB|BPUEVOU1NI|BQUklW|BFTkNSWVBU|BEU0Eg)[A-Za-z0-9+/=]{40,}"),
    ("adafruit", r"aio_[A-Za-z0-9]{28}"),
    ("adobe", r"p8e-[a-z0-9]{32}"),
    ("airtable", r"pat[A-Za-z0-9]{14}\.[0-9a-f]{64}"),
    ("alibaba", r"LTAI[A-Za-z0-9]{16,}"),
    ("artifactory", r"cmVmdGtu[A-Za-z0-9]{56}"),
    ("asana", r"[0-2]/[0-9]{13,19}(?:/[0-9]{13,19})?:[0-9a-f]{32}"),
    ("aws-bedrock", r"ABSK[A-Za-z0-9+/]{109,}"),
    ("bitbucket", r"ATBB[A-Za-z0-9]{32}"),
    ("brevo", r"x(?:key|smtp)sib-[0-9a-f]{64}-[A-Za-z0-9]{16}"),
    ("buildkite", r"bkua_[0-9a-f]{40}"),
    ("circleci", r"CCI(?:PAT|PRJ)_[A-Za-z0-9]{22}_[0-9a-f]{40}"),
    ("clojars", r"CLOJARS_[0-9a-z]{60}"),
    ("cloudflare", r"v1\.0-[0-9a-f]{24}-[0-9a-f]{140,}"),
    ("contentful", r"CFPAT-[A-Za-z0-9_\-]{43}"),
    ("defined-networking", r"dnkey-[A-Za-z0-9_=\-]{26}-[A-Za-z0-9_=\-]{52}"),
    ("doppler", r"dp\.(?:pt|ct|sa|scim|audit|st(?:\.[a-z0-9_\-]{2,19})?)\.[A-Za-z0-9]{40,}"),
    ("dropbox", r"sl\.[A-Za-z0-9_=\-]{130,}"),
    ("duffel", r"duffel_(?:live|test)_[A-Za-z0-9_=\-]{43}"),
    ("dynatrace", r"dt0[a-z][0-9]{2}\.[A-Z0-9]{8,24}\.[A-Z0-9]{64}"),
    ("easypost", r"EZ[AT]K[A-Za-z0-9]{54}"),
    ("facebook", r"EAA[A-Z][A-Za-z0-9]{100,}"),
    ("figma", r"fig[do]_[A-Za-z0-9_\-]{40}"),
    ("flutterwave", r"FLWSECK(?:_TEST)?-[0-9a-h]{12}"),
    ("frameio", r"fio-u-[A-Za-z0-9_=\-]{64}"),
    ("gitlab", r"glffct-[A-Za-z0-9_\-]{20}"),
    ("harness", r"[ps]at\.[A-Za-z0-9_\-]{22}\.[A-Za-z0-9]{24}\.[A-Za-z0-9]{20}"),
    ("hubspot", r"pat-(?:na|eu)[0-9]-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("infracost", r"ico-[A-Za-z0-9]{32}"),
    ("langfuse", r"sk-lf-[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"),
    ("langsmith", r"lsv2_[a-z]{2}_[0-9a-f]{32}_[0-9a-f]{10}"),
    ("lob", r"(?:live|test)_[0-9a-f]{35}\b"),
    ("lob", r"(?:live|test)_pub_[0-9a-f]{31}\b"),
    ("mapbox", r"[ps]k\.eyJ[A-Za-z0-9_\-]{40,}\.[A-Za-z0-9_\-]{20,}"),
    ("neon", r"napi_[a-z0-9]{60,}"),
    ("notion", r"(?:ntn_|secret_)[A-Za-z0-9]{43,}"),
    ("nuget", r"oy2[a-z0-9]{43}"),
    ("nvidia", r"nvapi-[A-Za-z0-9_\-]{60,}"),
    ("octopus", r"API-[A-Z0-9]{26}"),
    ("openshift", r"sha256~[A-Za-z0-9_\-]{43}"),
    ("perplexity", r"pplx-[A-Za-z0-9]{48}"),
    ("pinecone", r"pcsk_[A-Za-z0-9]{4,8}_[A-Za-z0-9]{50,}"),
    ("plaid", r"access-(?:sandbox|development|production)-[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}"),
    ("planetscale", r"pscale_(?:tkn|pw|oauth)_[A-Za-z0-9_=.\-]{32,}"),
    ("posthog", r"phx_[A-Za-z0-9]{40,}"),
    ("postman", r"PMAK-[0-9a-f]{24}-[0-9a-f]{34}"),
    ("prefect", r"pn[bu]_[A-Za-z0-9]{36}"),
    ("pulumi", r"pul-[0-9a-f]{40}"),
    ("readme", r"rdme_[a-z0-9]{70}"),
    ("render", r"rnd_[A-Za-z0-9]{28,}"),
    ("resend", r"re_[A-Za-z0-9]{8}_[A-Za-z0-9]{24}"),
    ("rubygems", r"rubygems_[0-9a-f]{48}"),
    ("scalingo", r"tk-us-[A-Za-z0-9_\-]{48}"),
    ("settlemint", r"sm_[aps]at_[A-Za-z0-9]{16}"),
    ("shippo", r"shippo_(?:live|test)_[0-9a-f]{40}"),
    ("sonar", r"sq[apu]_[0-9a-f]{40}"),
    ("sourcegraph", r"sgp_(?:[0-9a-f]{16}_|local_)?[0-9a-f]{40}"),
    ("tavily", r"tvly-(?:dev-|prod-)?[A-Za-z0-9]{32}"),
    ("typeform", r"tfp_[A-Za-z0-9_=.\-]{59}"),
    ("vercel", r"vercel_blob_rw_[A-Za-z0-9]{16}_[A-Za-z0-9]{30}"),
    ("yandex", r"AQVN[A-Za-z0-9_\-]{35}"),
    ("yandex", r"YC[A-Z][A-Za-z0-9_\-]{37}"),
    ("yandex", r"t1\.[A-Za-z0-9_\-]{16,}={0,2}\.[A-Za-z0-9_\-]{86}"),
    ("yandex", r"y0_[A-Za-z0-9_\-]{50,}"),
)
"""Kind and shape of tokens that are told by how they begin. No long run stands in parentheses: see `beginning`."""

INNER: tuple[tuple[str, str, str], ...] = (
    ("azure-ad", r"[A-Za-z0-9_~.\-]{3}[0-9]Q~[A-Za-z0-9_~.\-]{31,34}", r"[0-9]Q~[A-Za-z0-9_~.\-]{31}"),
    ("maxmind", r"[A-Za-z0-9]{6}_[A-Za-z0-9]{29}_mmk", r"_mmk"),
    ("terraform", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_=\-]{60,}", r"\.atlasv1\."),
)
"""Kind and shape of those that only their middle or end tells, and what that is."""

_SEARCHED_FOR = 20
"""Characters of a long run that the prefilter looks at."""
_RUN = re.compile(r"\{(\d+),?\d*\}")


def beginning(shape: str) -> str:
    """A shorter pattern that finds whatever `shape` does: up to its first long run."""
    run = next((run for run in _RUN.finditer(shape) if int(run[1]) > _SEARCHED_FOR), None)
    return shape if run is None else f"{shape[: run.start()]}{{{_SEARCHED_FOR}}}"


HINTS = (*(beginning(shape) for _, shape in TOKENS), *(hint for _, _, hint in INNER))
"""What the prefilter looks for, for each of them."""
SHAPES = (*TOKENS, *((kind, shape) for kind, shape, _ in INNER))
"""Kind and shape of all."""
