"""Pages are fetched from the public internet alone, in bounds of size, time and redirects."""

import asyncio
import ipaddress
import threading
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from anamnesis_pipeline.errors import AnamnesisError, DocumentUnsupported, PageRefused, PageUnreachable, TooLarge
from anamnesis_pipeline.sources import web
from anamnesis_pipeline.sources.web import Address, Page, fetch_page, is_public

HERE = ipaddress.ip_address("127.0.0.1")


class Site(BaseHTTPRequestHandler):
    """A web server of this machine that the tests pretend to be a public one."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(f"{self.headers['Host']}{self.path}")
        name, _, rest = self.path[1:].partition("/")
        getattr(self, f"_{name}")(rest)

    def _reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _page(self, _: str) -> None:
        self._reply(200, b"<p>hello</p>", Content_Type="text/html; charset=utf-8")

    def _status(self, code: str) -> None:
        self._reply(int(code), b"x", Content_Type="text/html")

    def _type(self, media_type: str) -> None:
        self._reply(200, b"x", Content_Type=media_type)

    def _zipped(self, _: str) -> None:
        self._reply(200, b"x", Content_Type="text/html", Content_Encoding="gzip")

    def _hop(self, left: str) -> None:
        self._reply(302, Location=f"/hop/{int(left) - 1}" if int(left) > 1 else "/page")

    def _to(self, target: str) -> None:
        self._reply(302, Location=target)

    def _endless(self, _: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.end_headers()
        try:
            while True:
                self.wfile.write(b"x" * 65536)
        except OSError:
            pass

    def _silent(self, _: str) -> None:
        self.server.released.wait(20)  # type: ignore[attr-defined]

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Asked", (Site,), {"asked": []}))
    server.released = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.released.set()  # type: ignore[attr-defined]
    server.shutdown()
    thread.join()
    server.server_close()


def names(**known: Sequence[str]) -> Callable[[str, int], object]:
    """A resolver that knows these names, and else asks the system, which reads numbers as addresses."""

    async def resolve(host: str, port: int) -> Sequence[str]:
        return known[host.partition(".")[0]] if host.partition(".")[0] in known else await web.resolve(host, port)

    return resolve


def fetch_url(url: str) -> Page:
    """The test's server is the only one that is taken for a public one, by the name `public.test`."""

    def allows(address: Address) -> bool:
        return address == HERE or is_public(address)

    resolve = names(public=["127.0.0.1"], inside=["10.0.0.7"], mixed=["127.0.0.1", "10.0.0.7"], gone=[])
    return asyncio.run(fetch_page(url, resolve=resolve, allows=allows))  # type: ignore[arg-type]


def fetch(site: ThreadingHTTPServer, path: str, host: str = "public.test") -> Page:
    return fetch_url(f"http://{host}:{site.server_address[1]}/{path}")


def asked(site: ThreadingHTTPServer) -> list[str]:
    found: list[str] = site.RequestHandlerClass.asked  # type: ignore[attr-defined]
    return found


def test_a_page_is_fetched_with_the_name_it_was_asked_by(site: ThreadingHTTPServer) -> None:
    port = site.server_address[1]
    assert fetch(site, "page") == Page(f"http://public.test:{port}/page", ".html", b"<p>hello</p>")
    assert asked(site) == [f"public.test:{port}/page"]


def test_five_redirects_are_followed_and_not_six(site: ThreadingHTTPServer) -> None:
    assert fetch(site, "hop/5").url.endswith("/page")
    with pytest.raises(PageRefused, match="redirects"):
        fetch(site, "hop/6")


@pytest.mark.parametrize(
    "target",
    [
        "http://inside.test/",
        "http://mixed.test/",
        "http://10.0.0.7/",
        "http://192.168.1.1/admin",
        "http://172.16.0.1/",
        "http://169.254.169.254/latest/meta-data",
        "http://0.0.0.0/",
        "http://[::1]/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[::ffff:10.0.0.7]/",
        "http://[64:ff9b::a00:7]/",
        "http://[2002:a00:7::]/",
        "http://167772167/",
        "http://0x0a.0.0.7/",
        "http://012.0.0.7/",
        "http://10.7/",
        "http://224.0.0.1/",
        "http://240.0.0.1/",
        "http://255.255.255.255/",
        "http://100.64.0.1/",
        "file:///etc/passwd",
        "ftp://public.test/",
        "gopher://public.test/",
        "http://user:word@public.test/",
        "//[/",
    ],
)
def test_what_is_not_public_is_refused_also_after_a_redirect(site: ThreadingHTTPServer, target: str) -> None:
    with pytest.raises(PageRefused):
        fetch_url(target)
    with pytest.raises(PageRefused):
        fetch(site, f"to/{target}")
    assert len(asked(site)) == 1


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:1/", "http://localhost:1/", "http://2130706433:1/", "http://0177.1:1/"]
)
def test_this_machine_is_never_asked_by_default(url: str) -> None:
    with pytest.raises(PageRefused, match="public internet"):
        asyncio.run(fetch_page(url))


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("93.184.216.34", True),
        ("2606:4700::1111", True),
        ("::ffff:93.184.216.34", True),
        ("10.1.2.3", False),
        ("::ffff:127.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("fec0::1", False),
        ("ff02::1", False),
        ("::", False),
        ("198.18.0.1", False),
        ("192.0.2.1", False),
        ("2001:db8::1", False),
        ("2001:0:7f00:1::", False),
    ],
)
def test_which_addresses_are_public(address: str, public: bool) -> None:
    assert is_public(ipaddress.ip_address(address)) is public


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("status/404", PageRefused),
        ("status/500", PageRefused),
        ("type/image/png", DocumentUnsupported),
        ("type/application/json", DocumentUnsupported),
        ("zipped", PageRefused),
        ("endless", TooLarge),
    ],
)
def test_a_page_that_cannot_be_read_says_why(site: ThreadingHTTPServer, path: str, error: type[AnamnesisError]) -> None:
    with pytest.raises(error) as refused:
        fetch(site, path)
    assert "public.test" in str(refused.value)


def test_who_does_not_answer_is_given_up(site: ThreadingHTTPServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_SECONDS", 0.2)
    with pytest.raises(PageUnreachable, match="seconds"):
        fetch(site, "silent")
    with pytest.raises(PageUnreachable):
        fetch(site, "page", host="gone.test")
