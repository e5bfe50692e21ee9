"""Made-up credentials with the shape of real ones. Made when a test runs, so that no scanner finds any here."""

import base64
import json
import random
import string
import uuid
from collections.abc import Callable, Mapping, Sequence

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"

Planted = tuple[str, list[str]]
"""The text as it would be printed, and the pieces of it that must be readable nowhere."""


class Maker:
    """Random text; one seed gives one set of credentials."""

    def __init__(self, seed: int | str) -> None:
        self._chance = random.Random(seed)

    def __call__(self, length: int, alphabet: str = ALNUM) -> str:
        """Random characters, letters at both ends where there are any, with at least two digits and two letters."""
        while True:
            text = "".join(self._chance.choices(alphabet, k=length))
            mixed = sum(map(str.isdigit, text)) >= 2 and sum(map(str.isalpha, text)) >= 2
            if (mixed or length < 8) and text[0].isalnum() and text[-1].isalnum():
                return text

    def digits(self, length: int) -> str:
        return str(self._chance.randint(1, 9)) + "".join(self._chance.choices("0123456789", k=length - 1))

    def letters(self, length: int) -> str:
        return "".join(self._chance.choices(string.ascii_letters, k=length))

    def one(self, choices: Sequence[str]) -> str:
        return self._chance.choice(choices)

    def number(self, below: int) -> int:
        return self._chance.randrange(below)

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def pem(self, kind: str) -> str:
        body = "\n".join(self(64, BASE64) for _ in range(8))
        return f"-----{'BEGIN'} {kind}PRIVATE KEY-----\n{body}\n-----{'END'} {kind}PRIVATE KEY-----"

    def jwt(self) -> str:
        head, body = ({"alg": "HS256", "typ": "JWT"}, {"sub": self(12), "iat": 1516239022})
        encoded = (base64.urlsafe_b64encode(json.dumps(v).encode()).decode().rstrip("=") for v in (head, body))
        return ".".join((*encoded, self(43, URLSAFE)))


def whole(value: str) -> Planted:
    """All of it is secret."""
    return value, [value]


def framed(before: str, value: str, after: str = "") -> Planted:
    """Only what is in the middle is."""
    return before + value + after, [value]


def key(pem: str) -> Planted:
    """The lines of a key between its first and last."""
    return pem, pem.split("\n")[1:-1]


def service_account(make: Maker) -> Planted:
    pem = make.pem("")
    account = {
        "type": "service_account",
        "project_id": "acme",
        "private_key_id": make(40, HEX),
        "private_key": pem + "\n",
        "client_email": "bot@acme.iam.gserviceaccount.com",
    }
    return json.dumps(account, indent=2), key(pem)[1]


def numbered(pem: str) -> Planted:
    """As a tool shows a file."""
    return "\n".join(f"{n:6}\u2192{line}" for n, line in enumerate(pem.split("\n"), 1)), key(pem)[1]


def torn(pem: str) -> Planted:
    lines = pem.split("\n")[:6]
    return "\n".join(lines), lines[1:]


def kubeconfig(pem: str) -> Planted:
    encoded = base64.b64encode(pem.encode()).decode()
    return f"client-key-data: {encoded}", [encoded[40:200]]


FORMS: Mapping[str, Callable[[Maker], Planted]] = {
    "AWS id": lambda make: whole("AKIA" + make(16, UPPER)),
    "AWS secret": lambda make: framed("aws_secret_access_key = ", make(40, BASE64)),
    "GCP service account": service_account,
    "Azure storage": lambda make: framed(
        "DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=", make(86, BASE64) + "=="
    ),
    "Azure SAS": lambda make: framed(
        "https://acme.blob.core.windows.net/c?sv=2022-11-02&sr=c&sp=r&sig=", make(42) + "%3D"
    ),
    "Azure AD": lambda make: framed("the app uses ", make(3) + "8Q~" + make(34), " as it is"),
    "GitHub classic": lambda make: whole("ghp" + "_" + make(36)),
    "GitHub fine-grained": lambda make: whole("github" + "_pat_" + make(22) + "_" + make(59)),
    "GitHub app": lambda make: whole("ghs" + "_" + make(36)),
    "GitLab": lambda make: whole("glpat" + "-" + make(20, URLSAFE)),
    "Slack bot": lambda make: whole("xoxb" + f"-{make.digits(12)}-{make.digits(12)}-" + make(24)),
    "Slack webhook": lambda make: whole(
        "https://hooks.slack" + f".com/services/T{make(8, UPPER)}/B{make(8, UPPER)}/" + make(24)
    ),
    "Stripe": lambda make: whole("sk" + "_live_" + make(24)),
    "Twilio": lambda make: whole("SK" + make(32, HEX)),
    "SendGrid": lambda make: whole("SG" + "." + make(22, URLSAFE) + "." + make(43, URLSAFE)),
    "Mailgun": lambda make: whole("key" + "-" + make(32, HEX)),
    "npm": lambda make: whole("npm" + "_" + make(36)),
    "PyPI": lambda make: whole("pypi-AgEIcHlwaS5vcmc" + make(90, URLSAFE)),
    "Docker Hub": lambda make: whole("dckr" + "_pat_" + make(27, URLSAFE)),
    "Hugging Face": lambda make: whole("hf" + "_" + make(34)),
    "OpenAI": lambda make: whole("sk" + "-proj-" + make(60) + "T3Blbk" + "FJ" + make(60)),
    "Anthropic": lambda make: whole("sk" + "-ant-api03-" + make(80, URLSAFE) + "AA"),
    "Google API": lambda make: whole("AIza" + make(35, URLSAFE)),
    "Firebase": lambda make: whole("AAAA" + make(7, URLSAFE) + ":APA91b" + make(134, URLSAFE)),
    "Heroku": lambda make: framed("HEROKU_API_KEY=", make.uuid()),
    "Heroku new": lambda make: whole("HRKU" + "-AA" + make(58, URLSAFE)),
    "DigitalOcean": lambda make: whole("dop" + "_v1_" + make(64, HEX)),
    "Cloudflare": lambda make: framed("export CLOUDFLARE_API_TOKEN=", make(40, URLSAFE)),
    "Telegram": lambda make: whole(f"{make.digits(9)}:" + make(35, URLSAFE)),
    "Discord": lambda make: whole(
        base64.b64encode(make.digits(18).encode()).decode() + "." + make(6) + "." + make(27, URLSAFE)
    ),
    "Shopify": lambda make: whole("shpat" + "_" + make(32, HEX)),
    "Square": lambda make: whole("sq0csp" + "-" + make(43, URLSAFE)),
    "Square access": lambda make: whole("sq0atp" + "-" + make(22, URLSAFE)),
    "Databricks": lambda make: whole("dapi" + make(32, HEX)),
    "Postgres URL": lambda make: framed("postgres" + "://app:", make(14), "@db.internal:5432/main"),
    "Mongo URL": lambda make: framed("mongodb" + "+srv://app:", make(14), "@cluster0.mongodb.net/main"),
    "Redis URL": lambda make: framed("redis" + "://:", make(14), "@cache:6379/0"),
    "basic auth URL": lambda make: framed("curl https" + "://admin:", make(14), "@internal.test/api"),
    "Bearer header": lambda make: framed("Authorization: Bearer ", make(40)),
    "JWT": lambda make: whole(make.jwt()),
    "RSA key": lambda make: key(make.pem("RSA ")),
    "EC key": lambda make: key(make.pem("EC ")),
    "OpenSSH key": lambda make: key(make.pem("OPENSSH ")),
    "age key": lambda make: whole("AGE-SECRET" + "-KEY-1" + make(58, UPPER)),
    ".netrc": lambda make: framed("machine api.test login me password ", make(14)),
    "exported password": lambda make: framed("export PASSWORD=", make(14)),
    "YAML password": lambda make: framed("db:\n  password: ", make(14), "\n  port: 1"),
    "JSON client secret": lambda make: framed('{"client_secret": "', make(32), '", "scope": "all"}'),
    "session cookie": lambda make: framed("Cookie: theme=dark; sessionid=", make(32), "; lang=en"),
    "Set-Cookie": lambda make: framed(
        "Set-Cookie: connect.sid=", "s%3A" + make(32) + "." + make(43), "; Path=/; HttpOnly"
    ),
}
"""Kinds of credentials, each in its usual form."""

VARIANTS: Mapping[str, Callable[[Maker], Planted]] = {
    "AWS temporary id": lambda make: whole("ASIA" + make(16, UPPER)),
    "Stripe restricted": lambda make: whole("rk" + "_live_" + make(40)),
    "Stripe test": lambda make: whole("sk" + "_test_" + make(24)),
    "OpenAI old": lambda make: whole("sk" + "-" + make(20) + "T3Blbk" + "FJ" + make(20)),
    "OpenRouter": lambda make: whole("sk" + "-or-v1-" + make(64, HEX)),
    "DeepSeek-like": lambda make: whole("sk" + "-" + make(32, HEX)),
    "Google OAuth": lambda make: whole("GOCSPX" + "-" + make(28)),
    "Mailchimp": lambda make: whole(make(32, HEX) + "-us12"),
    "Vault": lambda make: whole("hvs" + "." + make(30)),
    "URL password with signs": lambda make: framed("redis" + "://:", "p!x$" + make(14), "@cache:6379"),
    "Basic header": lambda make: framed("authorization: Basic ", make(28) + "=="),
    "exported token": lambda make: framed("export DEPLOY_TOKEN=", make(14)),
    "exported word": lambda make: framed("export DB_PASSWORD=", "correcthorse" + "battery"),
    "quoted YAML password": lambda make: framed('password: "', make(14), '"'),
    "Python assignment": lambda make: framed("API_KEY = '", make(24), "'"),
    "Go assignment": lambda make: framed('clientSecret := "', make(24), '"'),
    "JSON pair": lambda make: framed('{"db_password": "', make(14), '", "port": 5432}'),
    "query parameter": lambda make: framed("https://api.test/v1?access_token=", make(30), "&page=2"),
    "option": lambda make: framed("deploy --token ", make(20), " --yes"),
    "curl user": lambda make: framed("curl -u admin:", make(14), " https://api.test"),
    ".npmrc": lambda make: framed("//registry.npmjs.org/:_authToken=", make(36)),
    "spoken": lambda make: framed("my password is ", make(14), ", please log in"),
    "key with line numbers": lambda make: numbered(make.pem("OPENSSH ")),
    "torn key": lambda make: torn(make.pem("RSA ")),
    "kubeconfig": lambda make: kubeconfig(make.pem("RSA ")),
}
"""The same kinds in other forms, and other places where credentials stand."""


def credentials(seed: int) -> dict[str, Planted]:
    """Kind or variant -> a credential made up for this seed."""
    make = Maker(seed)
    return {name: form(make) for name, form in {**FORMS, **VARIANTS}.items()}
