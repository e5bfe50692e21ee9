"""Shapes of assignments and tokens, each with many generated values: a rule that knows one value may miss the next."""

import base64
import json
import random
import string

import pytest

from anamnesis_pipeline.parsing.redaction.masking import Redactor

LETTERS, MIXED = string.ascii_letters, string.ascii_letters + string.digits
LOWER, UPPER = string.ascii_lowercase + string.digits, string.ascii_uppercase + string.digits
DIGITS, HEX = string.digits, string.digits + "abcdef"
VALUES = 8

SHAPES = {
    "SECRET_KEY_BASE={}": (MIXED, 64),
    "ansible_become_pass={}": (MIXED, 12),
    '{{"user":"app","pass":"{}"}}': (MIXED, 12),
    "smtp:\n  pass: {}": (MIXED, 16),
    "pass: '{}'": (LETTERS, 12),
    "<password>{}</password>": (MIXED, 12),
    "<db:clientSecret>{}</db:clientSecret>": (MIXED, 24),
    "mysql -h db -u app -p{} shop": (MIXED, 12),
    "mysqldump --single-transaction -p'{}' shop": (MIXED, 12),
    "DB_PASSWORD={}": (LETTERS, 12),
    "password: {}": (LETTERS, 12),
    "export PGPASSWORD='{}'": (LETTERS, 12),
    "sshpass -p {} ssh host": (MIXED, 10),
    "curl -u bob:{} https://api.example.org": (MIXED, 10),
    "curl --user bob:{} https://api.example.org": (MIXED, 10),
    "curl -H 'Cookie: theme=dark; sid={}'": (MIXED, 32),
    "xai-{}": (MIXED, 80),
    "FLY_API_TOKEN='FlyV1 fm2_{}'": (MIXED, 120),
    "ops_eyJ{}": (MIXED, 200),
    # what was written for people
    "my api key: {}": (MIXED, 32),
    "The access key is {}": (HEX, 32),
    "Secret key: {}": (MIXED, 32),
    # command lines
    "mongosh --host db -u app -p {} shop": (MIXED, 7),
    "mongodump --username app --password {}": (LOWER, 7),
    "docker exec db mongo --host db -u app -p {} shop": (MIXED, 7),
    "mongo -p {} --username app": (MIXED, 7),
    "redis-cli -h cache -a {} ping": (MIXED, 7),
    "redis-cli --pass '{}' ping": (MIXED, 7),
    "curl -H 'Authorization: SSWS 00{}'": (MIXED, 40),
    "BUNDLE_ENTERPRISE__CONTRIBSYS__COM=cafe0123:{}": (HEX, 8),
    # addresses
    "https://discord.com/api/webhooks/123456789012345678/{}": (MIXED, 68),
    "https://canary.discordapp.com/api/webhooks/123456789012345678/{}": (MIXED, 68),
    "https://acme.webhook.office.com/webhookb2/6f1c@2a/IncomingWebhook/{}/9b7d": (HEX, 32),
    # tokens by their prefix
    "A3-ASWWYB-798JRY-LJVD4-23DC2-86TVM-{}": (UPPER, 5),
    "aio_{}": (MIXED, 28),
    "curl -u 'api:key-{}'": (HEX, 32),
    "the Mailgun sending key is now {}-3d4b3a2a-1c2d3e4f": (HEX, 32),
    "patA1b2C3d4E5f6G7.{}": (HEX, 64),
    "1/1201234567890123:{}": (HEX, 32),
    "1/1201234567890123/1209876543210987:{}": (HEX, 32),
    "p8e-{}": (LOWER, 32),
    "LTAI{}": (MIXED, 20),
    "cmVmdGtu{}": (MIXED, 56),
    "ATATT3xFfGF0{}": (MIXED, 180),
    "ATCTT3xFfGN0{}": (MIXED, 180),
    "ABSK{}": (MIXED, 120),
    "CCIPAT_Ab3Cd4Ef5Gh6Ij7Kl8Mn9O_{}": (HEX, 40),
    "CLOJARS_{}": (HEX, 60),
    "v1.0-0123456789abcdef01234567-{}": (HEX, 146),
    "CFPAT-{}": (MIXED, 43),
    "dapi{}": (HEX, 32),
    "dnkey-ABCDEFGHIJKLMNOPQRSTUVWXY1-{}": (UPPER, 52),
    "dop_v1_{}": (HEX, 64),
    "dp.pt.{}": (MIXED, 43),
    "sl.{}": (MIXED, 135),
    "duffel_live_{}": (MIXED, 43),
    "dt0c01.ABCDEFGHIJKLMNOPQRSTUVWX.{}": (UPPER, 64),
    "EZAK{}": (MIXED, 54),
    "EZTK{}": (MIXED, 54),
    "EAACEdEose0cBA{}": (MIXED, 150),
    "123456789012345|{}": (MIXED, 27),
    "figd_{}": (MIXED, 40),
    "FLWSECK-{}-X": (HEX, 32),
    "FLWSECK_TEST-{}-X": (HEX, 32),
    "FLWSECK_TEST-{}": (HEX, 12),
    "fo1_{}": (MIXED, 43),
    "fm2_{}": (MIXED, 120),
    "fio-u-{}": (MIXED, 64),
    "glc_{}": (MIXED, 60),
    "glsa_{}": (MIXED, 41),
    "glffct-{}": (MIXED, 20),
    "eyJrIjoi{}": (MIXED, 80),
    "pat.Ab3Cd4Ef5Gh6Ij7Kl8Mn9O.0123456789abcdef01234567.{}": (MIXED, 20),
    "hf_{}": (LETTERS, 34),
    "api_org_{}": (LETTERS, 34),
    "HRKU-AA{}": (MIXED, 58),
    "pat-na1-6f1c9e0b-7a42-4c1d-9e0b-{}": (HEX, 12),
    "ico-{}": (MIXED, 32),
    "lsv2_pt_0123456789abcdef0123456789abcdef_{}": (HEX, 10),
    "sk-lf-6f1c9e0b-7a42-4c1d-9e0b-{}": (HEX, 12),
    "lin_oauth_{}": (HEX, 64),
    "live_pub_{}": (HEX, 31),
    "test_{}": (HEX, 35),
    "{}-us17": (HEX, 32),
    "key-{}": (HEX, 32),
    "mailgun: 0123456789abcdef0123456789abcdef-1a2b3c4d-{}": (HEX, 8),
    "pk.eyJ1IjoiYWNtZSIsImEiOiJjbDAxMjM0NTY3ODkwMTIzNDU2Nzg5MCJ9.{}": (MIXED, 22),
    "sk.eyJ1IjoiYWNtZSIsImEiOiJjbDAxMjM0NTY3ODkwMTIzNDU2Nzg5MCJ9.{}": (MIXED, 22),
    "Ab3Cd4_{}_mmk": (MIXED, 29),
    "napi_{}": (LOWER, 64),
    "NRII-{}": (MIXED, 32),
    "ntn_12345678901{}": (MIXED, 35),
    "secret_{}": (MIXED, 43),
    "npm_{}": (MIXED, 36),
    "oy2{}": (LOWER, 43),
    "nvapi-{}": (MIXED, 64),
    "API-{}": (UPPER, 26),
    "sha256~{}": (MIXED, 43),
    "pplx-{}": (MIXED, 48),
    "phx_{}": (MIXED, 43),
    "pcsk_4aBcD_{}": (MIXED, 63),
    "access-production-6f1c9e0b-7a42-4c1d-9e0b-{}": (HEX, 12),
    "pscale_tkn_{}": (MIXED, 43),
    "pscale_pw_{}": (MIXED, 43),
    "pscale_oauth_{}": (MIXED, 43),
    "PMAK-0123456789abcdef01234567-{}": (HEX, 34),
    "pnu_{}": (MIXED, 36),
    "pul-{}": (HEX, 40),
    "rdme_{}": (LOWER, 70),
    "re_Ab3Cd4Ef_{}": (MIXED, 24),
    "rnd_{}": (MIXED, 32),
    "rubygems_{}": (HEX, 48),
    "tk-us-{}": (MIXED, 48),
    "SG.{}.0123456789abcdefghijABCDEFGHIJ0123456789abc": (MIXED, 22),
    "xkeysib-{}-AbCdEf1234567890": (HEX, 64),
    "xsmtpsib-{}-AbCdEf1234567890": (HEX, 64),
    "sntrys_eyJ{}": (MIXED, 120),
    "sm_pat_{}": (MIXED, 16),
    "shippo_live_{}": (HEX, 40),
    "shpat_{}": (HEX, 32),
    "squ_{}": (HEX, 40),
    "sgp_{}": (HEX, 40),
    "sgp_0123456789abcdef_{}": (HEX, 40),
    "sq0atp-{}": (MIXED, 22),
    "EAAA{}": (MIXED, 60),
    "12345678:AA{}": (MIXED, 33),
    "Ab3Cd4Ef5Gh6Ij.atlasv1.{}": (MIXED, 67),
    "tfp_{}": (MIXED, 59),
    "tvly-{}": (MIXED, 32),
    "hvs.{}": (MIXED, 95),
    "vercel_blob_rw_Ab3Cd4Ef5Gh6Ij7K_{}": (MIXED, 30),
    "AQVN{}": (MIXED, 36),
    "YCA{}": (MIXED, 37),
    "t1.9euelZqTnMeeis7LjpqPzpPOkpGU.{}": (MIXED, 86),
    "y0_AgAAAA{}": (MIXED, 50),
}


def values(shape: str) -> list[str]:
    alphabet, length = SHAPES[shape]
    draw = random.Random(shape)
    return ["".join(draw.choices(alphabet, k=length)) for _ in range(VALUES)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("where", ["as text", "in a line of JSON", "in JSON inside JSON"])
def test_every_generated_value_is_masked(shape: str, where: str) -> None:
    redactor = Redactor(b"test")
    for value in values(shape):
        text = shape.format(value)
        if where == "as text":
            masked, _ = redactor.mask_text(text)
        else:
            inner = {"content": json.dumps({"out": text}) if where == "in JSON inside JSON" else text}
            masked, _ = redactor.mask_line(json.dumps(inner))
        assert value not in masked
        assert "[REDACTED:" in masked


@pytest.mark.parametrize("spaces", ["", " ", "  "])
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_logins_in_dockers_configuration_are_masked(spaces: str, depth: int) -> None:
    draw = random.Random(depth)
    for _ in range(VALUES):
        login = base64.b64encode(f"ann:{''.join(draw.choices(MIXED, k=16))}".encode()).decode()
        text = f'{{"auths": {{"https://index.docker.io/v1/": {{"auth":{spaces}"{login}"}}}}}}'
        for _ in range(depth):
            text = json.dumps({"content": text})
        masked, kinds = Redactor(b"test").mask_line(text)
        assert login not in masked
        assert kinds == {"basic-auth": 1}
        json.loads(masked)
