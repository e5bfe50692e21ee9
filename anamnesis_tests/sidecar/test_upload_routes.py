"""Documents that are handed in over HTTP: found at once, kept once, bounded while they are read."""

import ctypes
import hashlib
import io
import resource
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar import security, upload_body
from anamnesis_pipeline.sources.web import Page, fetch_page
from anamnesis_tests.sidecar.conftest import TestServices

NOTES = (
    b"# Ledger\n\nThe zanzibar exporter rounds twice, which the review of March found.\n\n## Why\n\nQuagga said so.\n"
)


def send(client: TestClient, data: bytes = NOTES, name: str = "notes.md", **fields: Any) -> Any:
    media_type = fields.pop("media_type", "text/markdown")
    return client.post("/api/uploads", files={"file": (name, data, media_type)}, data=fields)


def found(client: TestClient, words: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.post("/api/episodes/search", json={"query": words}).json()["results"]
    return results


def test_an_uploaded_file_is_found_by_the_next_search_with_what_was_said_of_it(client: TestClient) -> None:
    reply = send(
        client, project="acme/api", instance="ann's desk", tags=["review", "ledger"], timestamp="2026-03-14T09:26:53Z"
    )
    assert reply.status_code == 201, reply.text
    body = reply.json()
    assert body["sections"] == len(body["episode_ids"]) >= 1
    assert (body["filename"], body["bytes"], body["duplicate"]) == ("notes.md", len(NOTES), False)
    hit = found(client, "zanzibar exporter")[0]
    assert hit["episode_id"] in body["episode_ids"]
    assert (hit["project"], hit["timestamp"]) == ("acme/api", "2026-03-14T09:26:53Z")
    assert hit["instance"] == body["instance"] == "ann's desk"
    assert {"review", "ledger"} <= set(hit["tags"])
    assert hit["similarity_score"] is not None


def test_a_text_in_json_and_the_older_address_do_the_same(client: TestClient) -> None:
    body = {"text": NOTES.decode(), "filename": "notes.md", "title": "Rounding"}
    reply = client.post("/api/episodes/upload", json=body)
    assert reply.status_code == 201, reply.text
    assert reply.json()["title"] == "Rounding"
    assert found(client, "zanzibar")
    again = send(client, name="other-name.md")
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert again.json()["upload_id"] == reply.json()["upload_id"]


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="only glibc keeps what was freed")
def test_hostile_document_leaves_no_memory_behind(client: TestClient) -> None:
    types = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as out:
        space = "http://schemas.openxmlformats.org/package/2006"
        out.writestr(
            "[Content_Types].xml",
            f'<Types xmlns="{space}/content-types"><Override PartName="/d.xml" ContentType="{types}.main+xml"/>'
            '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
            "</Types>",
        )
        office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships/officeDocument"
        out.writestr(
            "_rels/.rels",
            f'<Relationships xmlns="{space}/relationships"><Relationship Id="r" Type="{office}" Target="d.xml"/>'
            "</Relationships>",
        )
        out.writestr("d.xml", '<w:document xmlns:w="w"><w:body>' + "<w:p><w:r><w:t>x y</w:t></w:r></w:p>" * 400_000)
    assert send(client).status_code == 201
    before = resident_mb()
    refused = send(client, packed.getvalue(), "hostile.docx", media_type=types)
    assert refused.status_code == 422, refused.text
    assert resident_mb() < before + 80  # it took over 200


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def test_only_masked_text_is_kept(client: TestClient, services: TestServices) -> None:
    secret = "AKIA" + "IOSFODNN7QWERTYU"
    assert send(client, NOTES + f"aws key {secret}\n".encode(), title=f"key {secret}").status_code == 201
    home = services.settings.home
    stored = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert secret.encode() not in stored


@pytest.mark.parametrize(
    ("name", "media_type", "data", "status"),
    [
        ("photo.png", "image/png", b"\x89PNG\r\n\0\0", 415),
        ("id_rsa", "application/octet-stream", b"\0\1\2", 415),
        (".env", "text/plain", b"PASSWORD=hunter2hunter2", 415),
        ("empty.md", "text/markdown", b" \n", 422),
        ("broken.pdf", "application/pdf", b"%PDF-1.7 torn", 422),
        ("binary.md", "text/markdown", b"a\0b" * 100, 422),
        ("statement", "text/markdown; charset=utf-8", NOTES, 201),
        ("statement", "", NOTES, 201),
        ("../../etc/notes.md", "text/markdown", NOTES, 201),
        ("größe €.md", "text/markdown", NOTES, 201),
    ],
)
def test_what_cannot_be_read_says_so_and_a_name_without_an_ending_is_no_obstacle(
    client: TestClient, name: str, media_type: str, data: bytes, status: int
) -> None:
    reply = send(client, data, name, media_type=media_type)
    assert reply.status_code == status, reply.text
    if status == 201:
        ending = (".md" if media_type else ".txt") if name == "statement" else ""
        assert reply.json()["filename"] == name.rpartition("/")[2] + ending
    else:
        assert reply.headers["content-type"] == "application/problem+json"
        assert client.get("/api/uploads").json()["items"] == []


@pytest.mark.parametrize(
    ("data", "why"), [(b"Buy milk.", "its text has 9 characters"), (b"# " + b"- = " * 40, "no letter and no digit")]
)
def test_an_upload_of_which_nothing_is_remembered_says_why(client: TestClient, data: bytes, why: str) -> None:
    body = send(client, data, "short.md").json()
    assert body["sections"] == 0
    assert why in body["note"]
    assert why in client.get("/api/uploads").json()["items"][0]["note"]
    assert send(client).json()["note"] == ""


def test_an_upload_that_cannot_be_read_is_named_as_it_was_sent(client: TestClient) -> None:
    reply = send(client, b"%PDF-1.7 torn", "march report.pdf", media_type="application/pdf")
    assert reply.json()["detail"].startswith("march report.pdf: it is ")


def test_an_upload_of_which_all_was_deleted_before_says_so(client: TestClient) -> None:
    text = b"The zanzibar exporter rounds twice, as the review found."
    (episode_id,) = send(client, text, "a.txt").json()["episode_ids"]
    assert client.delete(f"/api/episodes/{episode_id}").status_code in {200, 204}
    assert "stays away" in send(client, text + b"\n\n", "b.txt").json()["note"]


def test_a_body_that_is_too_large_is_refused_while_it_is_read(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(upload_body, "MOST_BYTES", 10_000)
    monkeypatch.setattr(security, "UPLOAD_BODY_LIMIT", 20_000)
    assert send(client, b"x" * 10_001).status_code == 413
    seen = 0

    def endless() -> Iterator[bytes]:
        nonlocal seen
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'
        while seen < 1_000_000:
            seen += 1_000
            yield b"x" * 1_000

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    assert client.post("/api/uploads", content=endless(), headers=headers).status_code == 413
    assert client.post("/api/uploads", content=b"x", headers={"Content-Length": "999999999"}).status_code == 413


def _form(name: str, value: str = "x") -> bytes:
    """A form with a file and one more field, which may hold what is no UTF-8."""
    file = 'Content-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n# A\r\n'
    more = f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    return f"--b\r\n{file}--b\r\n{more}--b--\r\n".encode("utf-8", "surrogatepass")


@pytest.mark.parametrize(
    ("kind", "body", "status"),
    [
        ("text/plain", b"x", 400),
        ("application/json", b"{", 400),
        ("application/json", b'{"filename": "a.md"}', 422),
        ("application/json", b'{"text": "x", "colour": "red"}', 422),
        ("application/json", b'{"text": "\\ud800"}', 422),
        ("application/json", b'{"text": "x", "\\ud800": 1}', 422),
        ("application/json", b'{"text": "x", "title": "\\udfff"}', 422),
        ("multipart/form-data; boundary=b", _form("\u20ac\ud800"), 422),
        ("multipart/form-data", b"x", 400),
        ("multipart/form-data; boundary=b", b"nonsense", 400),
        ("multipart/form-data; boundary=b", b"--b--\r\n", 400),
        (
            "multipart/form-data; boundary=b",
            b'--b\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\nx',
            400,
        ),
    ],
)
def test_a_body_that_is_no_upload_is_a_problem(client: TestClient, kind: str, body: bytes, status: int) -> None:
    reply = client.post("/api/uploads", content=body, headers={"Content-Type": kind})
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"] == "application/problem+json"


def test_bytes_of_a_form_that_are_no_text_are_replaced(client: TestClient) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    reply = client.post("/api/uploads", content=_form("title", "Plan \ud800"), headers=headers)
    assert reply.status_code == 201, reply.text
    assert reply.json()["title"].startswith("Plan \ufffd")


def test_several_files_in_one_call_are_refused_and_none_is_taken(client: TestClient) -> None:
    files = [("file", ("a.md", NOTES, "text/markdown")), ("file", ("b.md", NOTES + b"x", "text/markdown"))]
    reply = client.post("/api/uploads", files=files)
    assert reply.status_code == 400
    assert "one file a call" in reply.json()["detail"]
    assert client.get("/api/uploads").json()["items"] == []


def test_uploads_are_listed_and_forgotten_and_come_back_when_they_are_sent_again(client: TestClient) -> None:
    first = send(client).json()
    second = send(client, b"# Gecko\n\nIt sleeps in the sun, as the keeper of the zoo wrote.\n", "gecko.md").json()
    listed = client.get("/api/uploads?limit=1").json()
    assert [each["upload_id"] for each in listed["items"]] == [second["upload_id"]]
    rest = client.get("/api/uploads", params={"limit": 1, "skip": listed["next_skip"]}).json()
    assert ([each["upload_id"] for each in rest["items"]], rest["next_skip"]) == ([first["upload_id"]], None)
    assert client.delete(f"/api/uploads/{first['upload_id']}").status_code == 204
    assert client.delete(f"/api/uploads/{first['upload_id']}").status_code == 404
    assert client.delete("/api/uploads/zzz").status_code == 404
    assert [hit["episode_id"] for hit in found(client, "zanzibar")] == second["episode_ids"]
    again = send(client)
    assert (again.status_code, again.json()["sections"]) == (201, first["sections"])
    assert found(client, "zanzibar")[0]["episode_id"] in again.json()["episode_ids"]


SHARED = b"\n## Shared\n\nThe capybara gateway retries thrice before it gives the whole batch up.\n"
OTHER = b"# Gecko\n\nIt sleeps in the sun, as the keeper of the zoo wrote.\n" + SHARED


def test_text_that_another_upload_holds_stays_there_and_an_upload_sent_again_is_whole(client: TestClient) -> None:
    one, two = send(client, NOTES + SHARED).json(), send(client, OTHER, "gecko.md").json()
    assert client.delete(f"/api/uploads/{one['upload_id']}").status_code == 204
    assert {hit["episode_id"] for hit in found(client, "capybara gateway")} <= set(two["episode_ids"])
    assert "capybara" in found(client, "capybara gateway")[0]["excerpt"]
    assert client.delete(f"/api/uploads/{two['upload_id']}").status_code == 204
    assert not found(client, "capybara gateway")
    again = send(client, NOTES + SHARED)
    assert (again.status_code, again.json()["sections"]) == (201, one["sections"])
    hit = found(client, "capybara gateway")[0]
    assert "capybara" in hit["excerpt"]
    assert hit["episode_id"] in again.json()["episode_ids"]


def test_an_upload_whose_episodes_are_forgotten_is_gone_and_new_when_it_is_sent_again(
    client: TestClient, services: TestServices
) -> None:
    upload = send(client, name="yellowhammer.md", title="Xylophone ledger").json()
    gone = client.post("/api/forget", json={"ids": upload["episode_ids"], "dry_run": False}).json()
    assert any(line.startswith("the file that was uploaded") for line in gone["remains"])
    assert client.get("/api/uploads").json()["items"] == []
    home = services.settings.home
    left = b"".join(file.read_bytes() for file in home.rglob("*") if file.is_file())
    assert [word for word in (b"Xylophone", b"yellowhammer") if word in left] == []
    again = send(client)
    assert (again.status_code, again.json()["duplicate"]) == (201, False)
    assert found(client, "zanzibar")[0]["episode_id"] in again.json()["episode_ids"]


def test_an_upload_without_an_episode_leaves_nothing_either(client: TestClient, services: TestServices) -> None:
    upload = send(client, b"yellow hammer", "yellowhammer.md").json()
    assert upload["episode_ids"] == []
    assert client.delete(f"/api/uploads/{upload['upload_id']}").status_code == 204
    left = b"".join(file.read_bytes() for file in services.settings.home.rglob("*") if file.is_file())
    assert b"yellowhammer" not in left
    assert send(client, b"yellow hammer", "yellowhammer.md").status_code == 201


def test_an_excluded_document_is_refused_with_the_reason(client: TestClient) -> None:
    rules = [("project", "secret"), ("content-pattern", "(?i)Quagga"), ("pattern", "draft-*")]
    ids = []
    for kind, value in rules:
        reply = client.post("/api/blocklist", json={"kind": kind, "value": value, "reason": "not ours"})
        ids.append(reply.json()["rule"]["id"])
    other = b"# Gecko\n\nIt sleeps in the sun, as the keeper of the zoo wrote.\n"
    for reply in (send(client), send(client, other, project="secret"), send(client, other, "draft-1.md")):
        assert reply.status_code == 409
        assert "not ours" in reply.json()["detail"]
    assert send(client, other).status_code == 201
    for rule_id in ids:
        client.delete(f"/api/blocklist/{rule_id}")
    assert send(client).status_code == 201


def test_a_file_from_an_excluded_folder_is_refused_when_the_client_says_where_it_lies(client: TestClient) -> None:
    rule = {"kind": "path", "value": "/home/ann/private", "machine": "laptop"}
    assert client.post("/api/blocklist", json=rule).status_code == 201
    refused = send(client, path="/home/ann/private/notes.md", instance="laptop")
    assert (refused.status_code, "/home/ann/private" in refused.json()["detail"]) == (409, True)
    said = {"text": "# Gecko\n\nIt sleeps in the sun, as the keeper of the zoo wrote.\n", "instance": "laptop"}
    assert client.post("/api/uploads", json=said | {"path": "/home/ann/private/a.md"}).status_code == 409
    assert client.post("/api/uploads", json=said | {"path": "/home/ann/public/a.md"}).status_code == 201


def test_a_document_that_is_stored_and_excluded_since_is_refused_with_the_reason(client: TestClient) -> None:
    data = b"# Ledger\n\nThe wombat exporter rounds twice, as the review of March found.\n"
    assert send(client, data, project="den").status_code == 201
    for kind, value in (("content", hashlib.sha256(data).hexdigest()), ("project", "den")):
        rule = client.post("/api/blocklist", json={"kind": kind, "value": value, "reason": "not ours"}).json()["rule"]
        refused = send(client, data)
        assert (refused.status_code, "not ours" in refused.json()["detail"]) == (409, True)
        client.delete(f"/api/blocklist/{rule['id']}")
    assert send(client, data).status_code == 200


class Site(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        body = b"<html><body><h1>Ledger</h1><p>The okapi buffer streams zanzibar rows to the disk.</p></body></html>"
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def site(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a page of this machine, which is taken for a public one by its name alone."""
    monkeypatch.delenv("ANAMNESIS_LOCAL_ONLY")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Site)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()

    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"] if host == "public.test" else ["10.0.0.7"]

    async def fetch(url: str) -> Page:
        return await fetch_page(url, resolve=resolve, allows=lambda address: str(address) == "127.0.0.1")

    client.app.state.fetch_page = fetch  # type: ignore[attr-defined]
    yield f"http://public.test:{server.server_address[1]}/ledger.html?token=1"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_page_of_the_web_becomes_an_upload_with_its_address(client: TestClient, site: str) -> None:
    reply = client.post("/api/episodes/ingest-url", json={"url": site, "project": "acme/api", "instance": "web"})
    assert reply.status_code == 201, reply.text
    assert found(client, "okapi buffer")[0]["instance"] == "web"
    assert (reply.json()["filename"], reply.json()["url"]) == ("ledger.html", site)
    assert "<p>" not in found(client, "okapi buffer")[0]["excerpt"]
    refused = client.post("/api/episodes/ingest-url", json={"url": "http://inside.test/"})
    assert refused.status_code == 422
    assert "public internet" in refused.json()["detail"]


def test_no_page_is_fetched_under_local_only(client: TestClient) -> None:
    reply = client.post("/api/episodes/ingest-url", json={"url": "http://93.184.216.34/"})
    assert reply.status_code == 422
    assert "LOCAL_ONLY" in reply.json()["detail"]
