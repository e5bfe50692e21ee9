"""Made-up credentials with the shape of real ones. Made when a test runs, so that no scanner finds any here."""

import base64
import json
import random
import string
import uuid

ALNUM = string.ascii_letters + string.digits
LOWER = string.ascii_lowercase + string.digits
UPPER = string.ascii_uppercase + string.digits
HEX = "0123456789abcdef"
URLSAFE = ALNUM + "-_"
BASE64 = ALNUM + "+/"


class Maker:
    """Random text; one seed gives one set of credentials."""

    def __init__(self, seed: int) -> None:
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

    def uuid(self) -> str:
        return str(uuid.UUID(int=self._chance.getrandbits(128), version=4))

    def pem(self, kind: str) -> str:
        body = "\n".join(self(64, BASE64) for _ in range(8))
        return f"-----{'BEGIN'} {kind}PRIVATE KEY-----\n{body}\n-----{'END'} {kind}PRIVATE KEY-----"

    def jwt(self) -> str:
        head, body = ({"alg": "HS256", "typ": "JWT"}, {"sub": self(12), "iat": 1516239022})
        encoded = (base64.urlsafe_b64encode(json.dumps(v).encode()).decode().rstrip("=") for v in (head, body))
        return ".".join((*encoded, self(43, URLSAFE)))


def credentials(seed: int) -> dict[str, tuple[str, list[str]]]:
    """Kind -> (the text as it would be printed, the pieces of it that must be readable nowhere)."""
    make = Maker(seed)

    def whole(value: str) -> tuple[str, list[str]]:
        return value, [value]

    def framed(before: str, value: str, after: str = "") -> tuple[str, list[str]]:
        return before + value + after, [value]

    def key(text: str) -> tuple[str, list[str]]:
        return text, text.split("\n")[1:-1]

    gcp = make.pem("")
    service_account = {
        "type": "service_account", "project_id": "acme", "private_key_id": make(40, HEX), "private_key": gcp + "\n",
        "client_email": "bot@acme.iam.gserviceaccount.com",
    }  # fmt: skip
    return {
        "AWS id": whole("AKIA" + make(16, UPPER)),
        "AWS secret": framed("aws_secret_access_key = ", make(40, BASE64)),
        "GCP service account": (json.dumps(service_account, indent=2), key(gcp)[1]),
        "Azure storage": framed("DefaultEndpointsProtocol=https;AccountName=acme;AccountKey=", make(86, BASE64) + "=="),
        "Azure SAS": framed("https://acme.blob.core.windows.net/c?sv=2022-11-02&sr=c&sp=r&sig=", make(42) + "%3D"),
        "Azure AD": framed("the app uses ", make(3) + "8Q~" + make(34), " as it is"),
        "GitHub classic": whole("ghp" + "_" + make(36)),
        "GitHub fine-grained": whole("github" + "_pat_" + make(22) + "_" + make(59)),
        "GitHub app": whole("ghs" + "_" + make(36)),
        "GitLab": whole("glpat" + "-" + make(20, URLSAFE)),
        "Slack bot": whole("xoxb" + f"-{make.digits(12)}-{make.digits(12)}-" + make(24)),
        "Slack webhook": whole(
            "https://hooks.slack" + f".com/services/T{make(8, UPPER)}/B{make(8, UPPER)}/" + make(24)
        ),
        "Stripe": whole("sk" + "_live_" + make(24)),
        "Twilio": whole("SK" + make(32, HEX)),
        "SendGrid": whole("SG" + "." + make(22, URLSAFE) + "." + make(43, URLSAFE)),
        "Mailgun": whole("key" + "-" + make(32, HEX)),
        "npm": whole("npm" + "_" + make(36)),
        "PyPI": whole("pypi-AgEIcHlwaS5vcmc" + make(90, URLSAFE)),
        "Docker Hub": whole("dckr" + "_pat_" + make(27, URLSAFE)),
        "Hugging Face": whole("hf" + "_" + make(34)),
        "OpenAI": whole("sk" + "-proj-" + make(60) + "T3Blbk" + "FJ" + make(60)),
        "Anthropic": whole("sk" + "-ant-api03-" + make(80, URLSAFE) + "AA"),
        "Google API": whole("AIza" + make(35, URLSAFE)),
        "Firebase": whole("AAAA" + make(7, URLSAFE) + ":APA91b" + make(134, URLSAFE)),
        "Heroku": framed("HEROKU_API_KEY=", make.uuid()),
        "Heroku new": whole("HRKU" + "-AA" + make(58, URLSAFE)),
        "DigitalOcean": whole("dop" + "_v1_" + make(64, HEX)),
        "Cloudflare": framed("export CLOUDFLARE_API_TOKEN=", make(40, URLSAFE)),
        "Telegram": whole(f"{make.digits(9)}:" + make(35, URLSAFE)),
        "Discord": whole(base64.b64encode(make.digits(18).encode()).decode() + "." + make(6) + "." + make(27, URLSAFE)),
        "Shopify": whole("shpat" + "_" + make(32, HEX)),
        "Square": whole("sq0csp" + "-" + make(43, URLSAFE)),
        "Square access": whole("sq0atp" + "-" + make(22, URLSAFE)),
        "Databricks": whole("dapi" + make(32, HEX)),
        "Postgres URL": framed("postgres" + "://app:", make(14), "@db.internal:5432/main"),
        "Mongo URL": framed("mongodb" + "+srv://app:", make(14), "@cluster0.mongodb.net/main"),
        "Redis URL": framed("redis" + "://:", make(14), "@cache:6379/0"),
        "basic auth URL": framed("curl https" + "://admin:", make(14), "@internal.test/api"),
        "Bearer header": framed("Authorization: Bearer ", make(40)),
        "JWT": whole(make.jwt()),
        "RSA key": key(make.pem("RSA ")),
        "EC key": key(make.pem("EC ")),
        "OpenSSH key": key(make.pem("OPENSSH ")),
        "age key": whole("AGE-SECRET" + "-KEY-1" + make(58, UPPER)),
        ".netrc": framed("machine api.test login me password ", make(14)),
        "exported password": framed("export PASSWORD=", make(14)),
        "YAML password": framed("db:\n  password: ", make(14), "\n  port: 1"),
        "JSON client secret": framed('{"client_secret": "', make(32), '", "scope": "all"}'),
        "session cookie": framed("Cookie: theme=dark; sessionid=", make(32), "; lang=en"),
        "Set-Cookie": framed("Set-Cookie: connect.sid=", "s%3A" + make(32) + "." + make(43), "; Path=/; HttpOnly"),
    }  # fmt: skip
