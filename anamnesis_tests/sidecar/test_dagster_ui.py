"""The guard before Dagster's webserver, over real sockets; behind it a server that notes what reaches it."""

import base64
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest
import uvicorn
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route, WebSocketRoute
from starlette.types import ASGIApp
from starlette.websockets import WebSocket
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from anamnesis_pipeline.errors import BadSetting
from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.dagster_ui import BODY_LIMIT, DagsterGuard, Relay, hidden_address, require_token
from anamnesis_tests.sidecar.conftest import wait_for

TOKEN = "correct horse battery staple"
MUTATION = "mutation{stopRunningSchedule{__typename}}"


Guarded = Callable[..., httpx.Client]


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", server_header=False, date_header=False))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: server.started, 10)
        yield int(listener.getsockname()[1])
        server.should_exit = True
        thread.join()


class Webserver:
    """What arrives at it, and answers as Dagster's does: whatever is asked is done, by GET too."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        routes = [Route("/{path:path}", self.http, methods=["GET", "POST", "PUT"]), WebSocketRoute("/graphql", self.ws)]
        self.app = Starlette(routes=routes)

    async def http(self, request: Request) -> Response:
        body = await request.body()
        self.asked.append(f"{request.method} {request.scope['raw_path'].decode()}?{request.url.query} {body.decode()}")
        return JSONResponse({"headers": sorted(request.headers)}, headers={"X-Dagster": "1"})

    async def ws(self, websocket: WebSocket) -> None:
        self.asked.append("websocket")
        await websocket.accept("graphql-ws")
        async for text in websocket.iter_text():
            if text == "close":
                await websocket.close()
                return
            await websocket.send_text(text * 2)


@pytest.fixture
def webserver() -> Webserver:
    return Webserver()


@pytest.fixture
def guarded(webserver: Webserver) -> Iterator[Guarded]:
    """Starts the guard with these settings before the webserver; a client of it."""
    with ExitStack() as opened:

        def start(**settings: object) -> httpx.Client:
            relay = Relay("127.0.0.1", opened.enter_context(serving(webserver.app)))
            guard = DagsterGuard(relay, Settings(home=Path("/nowhere"), **settings))  # type: ignore[arg-type]
            port = opened.enter_context(serving(guard))
            return opened.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{port}", trust_env=False))

        yield start


def graphql(client: httpx.Client, **headers: str) -> int:
    """The status that a query by POST gets."""
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post("/graphql", json={"query": MUTATION}, headers=names).status_code


def test_program_and_own_page_are_handed_on(guarded: Guarded, webserver: Webserver) -> None:
    client = guarded()
    assert graphql(client) == 200
    assert graphql(client, Origin=str(client.base_url), Sec_Fetch_Site="same-origin") == 200
    reply = client.get("/b%2Fc//d?x=%20y")
    assert webserver.asked[-1] == "GET /b%2Fc//d?x=%20y "
    assert (reply.headers["x-dagster"], reply.headers["x-frame-options"]) == ("1", "DENY")


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example:3000"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ],
)
def test_foreign_page_reaches_nothing(guarded: Guarded, webserver: Webserver, headers: dict[str, str]) -> None:
    client = guarded()
    assert client.post("/graphql", json={"query": MUTATION}, headers=headers).status_code in (403, 421)
    assert client.post("/report_asset_materialization/x", headers=headers).status_code in (403, 421)
    assert client.get("/graphql", params={"query": MUTATION}, headers=headers).status_code in (403, 405, 421)
    assert webserver.asked == []


@pytest.mark.parametrize(
    "path", ["/graphql", "/graphql/", "/x/../graphql", "/%67raphql", "//graphql", "/prefix/graphql"]
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_graphql_by_other_methods_is_refused(guarded: Guarded, webserver: Webserver, path: str, method: str) -> None:
    client = guarded()
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as raw:
        raw.sendall(f"{method} {path}?query={MUTATION} HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n".encode())
        assert b" 405 " in raw.recv(4096)
    assert webserver.asked == []


@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "text/plain; a=application/json"])
def test_graphql_of_a_form_is_refused(guarded: Guarded, webserver: Webserver, kind: str) -> None:
    reply = guarded().post("/graphql", params={"query": MUTATION}, content="x=1", headers={"Content-Type": kind})
    assert reply.status_code == 415
    assert webserver.asked == []


def test_names_and_pages_of_dagster_are_handed_on(guarded: Guarded) -> None:
    client = guarded(dagster_url="http://webserver:3000", dagster_link="https://dagster.example")
    assert graphql(client, Host="webserver:3000") == 200
    assert graphql(client, Host="dagster.example", Origin="https://dagster.example") == 200
    assert graphql(client, Host="sidecar:3000") == 421
    assert client.get("/graphql", headers={"Accept": "text/html"}).status_code == 200, "the page of GraphiQL"


def test_token_is_wanted_for_all_but_server_info(guarded: Guarded, webserver: Webserver) -> None:
    client = guarded(api_token=SecretStr(TOKEN))
    assert client.get("/server_info").status_code == 200
    for path in ("/", "/runs", "/graphql", "/logs/x", "/server_info/"):
        assert client.get(path).status_code == 401
    assert graphql(client) == graphql(client, Authorization="Bearer wrong") == 401
    assert client.get("/").headers["www-authenticate"].startswith("Basic ")
    assert graphql(client, Authorization=f"Bearer {TOKEN}") == 200
    assert [each for each in webserver.asked if "server_info" not in each] == [webserver.asked[-1]]


def test_browser_types_token_once(guarded: Guarded) -> None:
    def basic(typed: str) -> httpx.Response:
        return client.get("/", headers={"Authorization": f"Basic {base64.b64encode(typed.encode()).decode()}"})

    client = guarded(api_token=SecretStr(TOKEN))
    for typed in ("me:", "me:wrong", "\N{SNOWMAN}"):
        assert basic(typed).status_code == 401
    assert client.get("/", headers={"Authorization": "Basic ???"}).status_code == 401
    reply = basic(f"me:{TOKEN}")
    assert (reply.status_code, TOKEN in reply.headers["set-cookie"]) == (200, False)
    assert {"HttpOnly", "SameSite=Strict"} <= set(reply.headers["set-cookie"].split("; "))
    assert client.get("/runs").status_code == 200, "its cookie is enough"


def websocket_url(client: httpx.Client) -> str:
    return f"ws://127.0.0.1:{client.base_url.port}/graphql"


def test_websocket_is_relayed_until_closed(guarded: Guarded) -> None:
    client = guarded()
    origin = Origin(str(client.base_url).rstrip("/"))
    with connect(websocket_url(client), origin=origin, subprotocols=[Subprotocol("graphql-ws")], proxy=None) as socket_:
        assert socket_.subprotocol == "graphql-ws"
        for text in ("a", "b" * 300_000, ""):
            socket_.send(text)
            assert socket_.recv(10) == text * 2
        socket_.send("close")
        assert list(socket_) == []


@pytest.mark.parametrize(
    "headers", [{"Origin": "http://evil.example"}, {"Host": "evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}]
)
def test_foreign_websocket_is_refused(guarded: Guarded, webserver: Webserver, headers: dict[str, str]) -> None:
    client = guarded(**({} if headers else {"api_token": SecretStr(TOKEN)}))
    lines = {"Host": "127.0.0.1", "Upgrade": "websocket", "Connection": "Upgrade", "Sec-WebSocket-Version": "13"}
    lines |= {"Sec-WebSocket-Key": "x3JJHMbDL1EzLkh9GBhXDw==", **headers}
    with socket.create_connection(("127.0.0.1", client.base_url.port or 0)) as raw:
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        raw.sendall(f"GET /graphql HTTP/1.1\r\n{head}\r\n".encode())
        assert raw.recv(4096).startswith(b"HTTP/1.1 403 ")
    assert webserver.asked == []


def test_body_is_bounded(guarded: Guarded) -> None:
    def pieces() -> Iterator[bytes]:
        for _ in range(BODY_LIMIT // 65_536 + 2):
            yield b"x" * 65_536

    try:
        reply = guarded().post("/graphql", content=pieces(), headers={"Content-Type": "application/json"})
        assert reply.status_code == 413
    except httpx.WriteError:
        pass  # it hung up before all was sent


def test_webserver_that_is_away_is_a_503() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with serving(DagsterGuard(Relay("127.0.0.1", port), Settings(home=Path("/nowhere")))) as guard:
        reply = httpx.get(f"http://127.0.0.1:{guard}/server_info", trust_env=False)
        assert reply.status_code == 503
        with pytest.raises(InvalidStatus), connect(f"ws://127.0.0.1:{guard}/graphql", proxy=None):
            pass


def test_open_address_wants_a_token_and_hidden_ones_differ() -> None:
    with pytest.raises(BadSetting, match="ANAMNESIS_API_TOKEN"):
        require_token("0.0.0.0", None)
    require_token("127.0.0.1", None)
    require_token("0.0.0.0", SecretStr(TOKEN))
    found = {hidden_address() for _ in range(20)}
    assert len({host for host, _ in found}) == 20
    assert all(host.startswith("127.") for host, _ in found)


def test_guard_imports_neither_the_pipeline_nor_numpy() -> None:
    code = "import sys, anamnesis_pipeline.sidecar.dagster_ui; print(*sys.modules)"
    modules = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert not {"numpy", "anamnesis_pipeline.store.base", "anamnesis_pipeline.pipeline.archive"} & set(modules)
