from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.settings import Settings, load
from anamnesis_pipeline.sidecar import security
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_tests.sidecar.conftest import BASE, open_services, problem

TOKEN = "correct horse battery staple"
JSON = {"Content-Type": "application/json"}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    services = open_services(tmp_path, api_token=TOKEN, allowed_hosts=("memory.example",))
    with TestClient(create_app(services), base_url=BASE) as client:
        yield client


def test_request_may_name_loopback_or_an_allowed_host(guarded: TestClient) -> None:
    for host in "127.0.0.1 127.0.0.1:3010 localhost LOCALHOST:9 [::1] [::1]:3010 memory.example:80".split():
        assert guarded.get("/health", headers={"Host": host}).status_code == 200, host


def test_request_that_names_another_host_is_misdirected(guarded: TestClient) -> None:
    for host in (
        "evil.example",
        "evil.example:3010",
        "127.0.0.1.evil.example",
        "localhost@evil.example",
        "127.0.0.1/x",
        "::1",
        "",
        "a:b",
    ):
        for path in ("/health", "/api/episodes"):
            problem(guarded.get(path, headers={"Host": host, "Authorization": f"Bearer {TOKEN}"}), 421)


def test_the_bind_address_may_be_named_but_not_a_wildcard() -> None:
    bound = security.allowed_hosts(Settings(bind="192.0.2.7", api_token=SecretStr("x")))
    assert "192.0.2.7" in bound
    assert security.allowed_hosts(Settings(bind="0.0.0.0", api_token=SecretStr("x"))) == security.LOOPBACK


@pytest.mark.parametrize(
    ("origin", "host", "allowed"),
    [
        ("http://127.0.0.1:3010", "127.0.0.1:3010", True),
        ("http://localhost:3010", "LocalHost:3010", True),
        ("http://[::1]:3010", "[::1]:3010", True),
        ("https://memory.example", "memory.example", True),
        ("http://memory.example", "memory.example:80", True),
        ("http://127.0.0.1:8080", "127.0.0.1:3010", False),
        ("http://localhost:3010", "127.0.0.1:3010", False),
        ("https://evil.example", "127.0.0.1:3010", False),
        ("null", "127.0.0.1:3010", False),
        ("file://", "127.0.0.1:3010", False),
        ("127.0.0.1:3010", "127.0.0.1:3010", False),
        ("", "127.0.0.1:3010", False),
    ],
)
def test_pages_of_another_origin_may_not_call(guarded: TestClient, origin: str, host: str, allowed: bool) -> None:
    reply = guarded.get("/health", headers={"Origin": origin, "Host": host})
    assert reply.status_code == (200 if allowed else 403)


@pytest.mark.parametrize("path", ["/ready", "/metrics", "/docs", "/openapi.json", "/api/episodes", "/nope", "/health/"])
@pytest.mark.parametrize(
    "authorization", [None, "", "Bearer", "Bearer wrong", f"Basic {TOKEN}", TOKEN, f"Bearer {TOKEN}x", "Bearer \xe9"]
)
def test_every_route_but_health_wants_the_token(guarded: TestClient, path: str, authorization: str | None) -> None:
    headers = {} if authorization is None else {"Authorization": authorization.encode("latin-1")}
    reply = guarded.get(path, headers=headers)  # type: ignore[arg-type]
    problem(reply, 401)
    assert reply.headers["www-authenticate"].startswith("Bearer")
    assert TOKEN not in reply.text


def test_token_opens_and_health_needs_none(guarded: TestClient, client: TestClient) -> None:
    assert guarded.get("/health").status_code == 200
    for scheme in ("Bearer", "bearer"):
        assert guarded.get("/api/episodes", headers={"Authorization": f"{scheme} {TOKEN}"}).status_code == 200
    document = guarded.get("/openapi.json", headers={"Authorization": f"Bearer {TOKEN}"}).json()
    assert document["paths"]["/api/episodes"]["get"]["security"]
    assert "security" not in document["paths"]["/health"]["get"]
    assert "securitySchemes" not in client.get("/openapi.json").json()["components"]


@pytest.mark.parametrize("known_length", [True, False])
@pytest.mark.parametrize(
    ("path", "limit"), [("/api/episodes", 1), ("/api/episodes/search", 1), ("/api/episodes/bulk", 32)]
)
def test_body_beyond_the_limit_is_refused(client: TestClient, path: str, limit: int, known_length: bool) -> None:
    def status(size: int) -> int:
        pieces = (b" " * min(500_000, size - start) for start in range(0, size, 500_000))
        return client.post(path, content=b" " * size if known_length else pieces, headers=JSON).status_code

    assert (status(limit * security.MIB), status(limit * security.MIB + 1)) == (400, 413)


def test_request_that_lies_about_its_length_is_stopped(client: TestClient) -> None:
    reply = client.post("/api/episodes", content=b" " * (2 * security.MIB), headers={**JSON, "Content-Length": "10"})
    assert reply.status_code == 413
    assert "1 MiB" in reply.json()["detail"]


def test_responses_are_neither_stored_nor_guessed_at(client: TestClient) -> None:
    for path in ("/health", "/ready", "/api/episodes", "/nope", "/api/episodes/recent", "/docs"):
        headers = client.get(path).headers
        assert (headers["x-content-type-options"], headers["cache-control"]) == ("nosniff", "no-store"), path


@pytest.mark.parametrize("bind", ["0.0.0.0", "192.0.2.7", "::", "memory.example"])
def test_address_open_to_other_machines_needs_a_token(bind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for own in ("127.0.0.1", "127.0.0.2", "::1", "localhost"):
        monkeypatch.setenv("ANAMNESIS_BIND", own)
        assert load().api_token is None, own
    monkeypatch.setenv("ANAMNESIS_BIND", bind)
    for nothing in (None, ""):
        if nothing is not None:
            monkeypatch.setenv("ANAMNESIS_API_TOKEN", nothing)
        with pytest.raises(BadSetting, match="ANAMNESIS_API_TOKEN to a long random text"):
            load()
    monkeypatch.setenv("ANAMNESIS_API_TOKEN", "long and random")
    assert load().bind == bind


def test_embedded_requests_of_other_sites_are_refused(guarded: TestClient) -> None:
    def status(method: str, path: str, site: str, mode: str) -> int:
        sent = {"Authorization": f"Bearer {TOKEN}", "Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode}
        return guarded.request(method, path, headers=sent).status_code

    assert status("GET", "/dashboard/search?q=x", "cross-site", "no-cors") == 403
    assert status("GET", "/dashboard/search?q=x", "cross-site", "navigate") == 200, "a link"
    assert status("POST", "/api/chat/sessions/x/stop", "cross-site", "navigate") == 403, "a form of theirs"
    assert status("GET", "/dashboard/search?q=x", "same-origin", "cors") == 200


@pytest.mark.parametrize("how", ["header", "form"])
def test_who_guesses_waits_and_others_do_not(guarded: TestClient, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    now = 0.0
    monkeypatch.setattr(guarded.app.state.guesses, "_clock", lambda: now)  # type: ignore[attr-defined]
    stranger = TestClient(guarded.app, base_url=BASE, client=("203.0.113.5", 1))
    right, form = {"Authorization": f"Bearer {TOKEN}"}, {"Origin": BASE}
    for _ in range(20):
        if how == "form":
            reply = stranger.post("/login", data={"token": "guess"}, headers=form)
        else:
            reply = stranger.get("/api/episodes", headers={"Authorization": "Bearer guess"})
        assert reply.status_code == 401
    refused = stranger.get("/api/episodes", headers=right)
    assert (refused.status_code, refused.headers["retry-after"]) == (429, "60")
    assert stranger.post("/login", data={"token": TOKEN}, headers=form).status_code == 429
    assert stranger.get("/health").status_code == 200
    assert guarded.get("/api/episodes", headers=right).status_code == 200
    now = 61.0
    assert stranger.get("/api/episodes", headers=right).status_code == 200


def test_this_machine_is_never_shut_out(guarded: TestClient) -> None:
    here = TestClient(guarded.app, base_url=BASE, client=("127.0.0.1", 1))
    for _ in range(25):
        assert here.get("/api/episodes", headers={"Authorization": "Bearer old"}).status_code == 401
    assert here.get("/api/episodes", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
