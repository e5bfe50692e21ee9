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
from anamnesis_tests.sidecar.conftest import TestServices, problem

NOTES = (
    b"# Ledger\n\nThe zanzibar exporter rounds twice, which the review of March found.\n\n## Why\n\nQuagga said so.\n"
)


def send(client: TestClient, data: bytes = NOTES, name: str = "notes.md", **fields: Any) -> Any:
    media_type = fields.pop("media_type", "text/markdown")
    return client.post("/api/uploads", files={"file": (name, data, media_type)}, data=fields)


def sent(client: TestClient, data: bytes = NOTES, name: str = "notes.md", status: int = 201, **fields: Any) -> Any:
    """The answer to a file."""
    reply = send(client, data, name, **fields)
    assert reply.status_code == status, reply.text
    return reply.json()


def left_in(services: TestServices, *words: str) -> list[str]:
    """The words that files of the home hold."""
    stored = b"".join(file.read_bytes() for file in services.settings.home.rglob("*") if file.is_file())
    return [word for word in words if word.encode() in stored]


def found(client: TestClient, words: str) -> list[dict[str, Any]]:
    results: list[dict[str, Any]] = client.post("/api/episodes/search", json={"query": words}).json()["results"]
    return results


def test_upload_is_found_with_what_was_said_of_it(client: TestClient) -> None:
    told = {"project": "acme/api", "instance": "ann's desk", "timestamp": "2026-03-14T09:26:53Z"}
    body = sent(client, tags=["review", "ledger"], **told)
    assert body["sections"] == len(body["episode_ids"]) >= 1
    assert (body["filename"], body["bytes"], body["duplicate"]) == ("notes.md", len(NOTES), False)
    hit = found(client, "zanzibar exporter")[0]
    assert hit["episode_id"] in body["episode_ids"]
    assert {name: hit[name] for name in told} == told
    assert body["instance"] == "ann's desk"
    assert {"review", "ledger"} <= set(hit["tags"])
    assert hit["similarity_score"] is not None


def test_text_in_json_and_the_older_address_do_the_same(client: TestClient) -> None:
    body = {"text": NOTES.decode(), "filename": "notes.md", "title": "Rounding"}
    reply = client.post("/api/episodes/upload", json=body)
    assert (reply.status_code, reply.json()["title"]) == (201, "Rounding")
    assert found(client, "zanzibar")
    again = sent(client, name="other-name.md", status=200)
    assert (again["duplicate"], again["upload_id"]) == (True, reply.json()["upload_id"])


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
    sent(client)
    before = resident_mb()
    sent(client, packed.getvalue(), "hostile.docx", 422, media_type=types)
    assert resident_mb() < before + 80  # it took over 200


def resident_mb() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() >> 20


def test_only_masked_text_is_kept(client: TestClient, services: TestServices) -> None:
    secret = "AKIA" + "IOSFODNN7QWERTYU"
    sent(client, NOTES + f"aws key {secret}\n".encode(), title=f"key {secret}")
    assert left_in(services, secret, "zanzibar") == ["zanzibar"]


def test_what_cannot_be_read_is_refused(client: TestClient) -> None:
    for name, media_type, data, status in (
        ("photo.png", "image/png", b"\x89PNG\r\n\0\0", 415),
        ("id_rsa", "application/octet-stream", b"\0\1\2", 415),
        (".env", "text/plain", b"PASSWORD=hunter2hunter2", 415),
        ("empty.md", "text/markdown", b" \n", 422),
        ("march report.pdf", "application/pdf", b"%PDF-1.7 torn", 422),
        ("binary.md", "text/markdown", b"a\0b" * 100, 422),
    ):
        told = problem(send(client, data, name, media_type=media_type), status)["detail"]
        assert told.startswith(f"{name}: it is ") or not name.endswith(".pdf")
    assert client.get("/api/uploads").json()["items"] == []


@pytest.mark.parametrize(
    ("name", "media_type", "taken_as"),
    [
        ("statement", "text/markdown; charset=utf-8", "statement.md"),
        ("statement", "", "statement.txt"),
        ("../../etc/notes.md", "text/markdown", "notes.md"),
        ("größe €.md", "text/markdown", "größe €.md"),
    ],
)
def test_name_is_taken_without_folder_or_ending(client: TestClient, name: str, media_type: str, taken_as: str) -> None:
    assert sent(client, NOTES, name, media_type=media_type)["filename"] == taken_as


def test_upload_of_which_nothing_is_remembered_says_why(client: TestClient) -> None:
    for data, why in ((b"Buy milk.", "its text has 9 characters"), (b"# " + b"- = " * 40, "no letter and no digit")):
        body = sent(client, data, "short.md")
        assert (body["sections"], why in body["note"]) == (0, True)
        assert why in client.get("/api/uploads").json()["items"][0]["note"]
    assert sent(client)["note"] == ""


def test_upload_of_deleted_text_says_so(client: TestClient) -> None:
    text = b"The zanzibar exporter rounds twice, as the review found."
    (episode_id,) = sent(client, text, "a.txt")["episode_ids"]
    assert client.delete(f"/api/episodes/{episode_id}").status_code == 204
    assert "stays away" in sent(client, text + b"\n\n", "b.txt")["note"]


def test_body_too_large_is_refused_as_read(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upload_body, "MAX_BYTES", 10_000)
    monkeypatch.setattr(security, "UPLOAD_BODY_LIMIT", 20_000)
    sent(client, b"x" * 10_001, status=413)
    read: list[int] = []

    def endless() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n'
        while len(read) < 1_000:
            read.append(1)
            yield b"x" * 1_000

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    problem(client.post("/api/uploads", content=endless(), headers=headers), 413)
    problem(client.post("/api/uploads", content=b"x", headers={"Content-Length": "999999999"}), 413)


def _form(name: str, value: str = "x") -> bytes:
    """A form with a file and one more field, which may hold what is no UTF-8."""
    file = 'Content-Disposition: form-data; name="file"; filename="a.md"\r\n\r\n# A\r\n'
    more = f'Content-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'
    return f"--b\r\n{file}--b\r\n{more}--b--\r\n".encode("utf-8", "surrogatepass")


def test_body_that_is_no_upload_is_a_problem(client: TestClient) -> None:
    form, json = "multipart/form-data; boundary=b", "application/json"
    for kind, body, status in (
        ("text/plain", b"x", 400),
        (json, b"{", 400),
        (json, b'{"filename": "a.md"}', 422),
        (json, b'{"text": "x", "colour": "red"}', 422),
        (json, b'{"text": "\\ud800"}', 422),
        (json, b'{"text": "x", "\\ud800": 1}', 422),
        (json, b'{"text": "x", "title": "\\udfff"}', 422),
        (form, _form("\u20ac\ud800"), 422),
        ("multipart/form-data", b"x", 400),
        (form, b"nonsense", 400),
        (form, b"--b--\r\n", 400),
        (form, _form("title").partition(b"# A")[0] + b"x", 400),
    ):
        problem(client.post("/api/uploads", content=body, headers={"Content-Type": kind}), status)


def test_bytes_of_a_form_that_are_no_text_are_replaced(client: TestClient) -> None:
    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    reply = client.post("/api/uploads", content=_form("title", "Plan \ud800"), headers=headers)
    assert reply.status_code == 201, reply.text
    assert reply.json()["title"].startswith("Plan \ufffd")


def test_several_files_in_one_call_are_refused(client: TestClient) -> None:
    files = [("file", ("a.md", NOTES, "text/markdown")), ("file", ("b.md", NOTES + b"x", "text/markdown"))]
    assert "one file a call" in problem(client.post("/api/uploads", files=files), 400)["detail"]
    assert client.get("/api/uploads").json()["items"] == []


def test_uploads_are_listed_forgotten_and_come_back(client: TestClient) -> None:
    first, second = sent(client), sent(client, GECKO, "gecko.md")
    listed = client.get("/api/uploads?limit=1").json()
    assert [each["upload_id"] for each in listed["items"]] == [second["upload_id"]]
    rest = client.get("/api/uploads", params={"limit": 1, "skip": listed["next_skip"]}).json()
    assert ([each["upload_id"] for each in rest["items"]], rest["next_skip"]) == ([first["upload_id"]], None)
    assert client.delete(f"/api/uploads/{first['upload_id']}").status_code == 204
    for gone in (first["upload_id"], "zzz"):
        problem(client.delete(f"/api/uploads/{gone}"), 404)
    assert [hit["episode_id"] for hit in found(client, "zanzibar")] == second["episode_ids"]
    again = sent(client)
    assert again["sections"] == first["sections"]
    assert found(client, "zanzibar")[0]["episode_id"] in again["episode_ids"]


GECKO = b"# Gecko\n\nIt sleeps in the sun, as the keeper of the zoo wrote.\n"
SHARED = b"\n## Shared\n\nThe capybara gateway retries thrice before it gives the whole batch up.\n"


def test_text_that_another_upload_holds_stays_there(client: TestClient) -> None:
    one, two = sent(client, NOTES + SHARED), sent(client, GECKO + SHARED, "gecko.md")
    assert client.delete(f"/api/uploads/{one['upload_id']}").status_code == 204
    assert {hit["episode_id"] for hit in found(client, "capybara gateway")} <= set(two["episode_ids"])
    assert "capybara" in found(client, "capybara gateway")[0]["excerpt"]
    assert client.delete(f"/api/uploads/{two['upload_id']}").status_code == 204
    assert not found(client, "capybara gateway")
    again = sent(client, NOTES + SHARED)
    assert again["sections"] == one["sections"]
    hit = found(client, "capybara gateway")[0]
    assert ("capybara" in hit["excerpt"], hit["episode_id"] in again["episode_ids"]) == (True, True)


def test_upload_whose_episodes_are_forgotten_is_gone(client: TestClient, services: TestServices) -> None:
    upload = sent(client, name="yellowhammer.md", title="Xylophone ledger")
    gone = client.post("/api/forget", json={"ids": upload["episode_ids"], "dry_run": False}).json()
    assert any(line.startswith("the file that was uploaded") for line in gone["remains"])
    assert client.get("/api/uploads").json()["items"] == []
    assert left_in(services, "Xylophone", "yellowhammer") == []
    again = sent(client)
    assert not again["duplicate"]
    assert found(client, "zanzibar")[0]["episode_id"] in again["episode_ids"]


def test_upload_without_an_episode_leaves_nothing(client: TestClient, services: TestServices) -> None:
    upload = sent(client, b"yellow hammer", "yellowhammer.md")
    assert upload["episode_ids"] == []
    assert client.delete(f"/api/uploads/{upload['upload_id']}").status_code == 204
    assert left_in(services, "yellowhammer") == []
    sent(client, b"yellow hammer", "yellowhammer.md")


def exclude(client: TestClient, **rule: str) -> str:
    reply = client.post("/api/blocklist", json={"reason": "not ours", **rule})
    assert reply.status_code == 201, reply.text
    return str(reply.json()["rule"]["id"])


def test_excluded_document_is_refused_with_the_reason(client: TestClient) -> None:
    rules = (("project", "secret"), ("content-pattern", "(?i)Quagga"), ("pattern", "draft-*"))
    ids = [exclude(client, kind=kind, value=value) for kind, value in rules]
    for reply in (send(client), send(client, GECKO, project="secret"), send(client, GECKO, "draft-1.md")):
        assert "not ours" in problem(reply, 409)["detail"]
    sent(client, GECKO)
    for rule_id in ids:
        client.delete(f"/api/blocklist/{rule_id}")
    sent(client)


def test_stored_document_excluded_since_is_refused(client: TestClient) -> None:
    sent(client, GECKO, project="den")
    for kind, value in (("content", hashlib.sha256(GECKO).hexdigest()), ("project", "den")):
        rule_id = exclude(client, kind=kind, value=value)
        assert "not ours" in problem(send(client, GECKO), 409)["detail"]
        client.delete(f"/api/blocklist/{rule_id}")
    sent(client, GECKO, status=200)


def test_file_from_an_excluded_folder_is_refused(client: TestClient) -> None:
    exclude(client, kind="path", value="/home/ann/private", machine="laptop")
    refused = send(client, path="/home/ann/private/notes.md", instance="laptop")
    assert "/home/ann/private" in problem(refused, 409)["detail"]
    said = {"text": GECKO.decode(), "instance": "laptop"}
    for folder, status in (("private", 409), ("public", 201)):
        reply = client.post("/api/uploads", json=said | {"path": f"/home/ann/{folder}/a.md"})
        assert reply.status_code == status


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


def test_page_of_the_web_becomes_an_upload(client: TestClient, site: str) -> None:
    reply = client.post("/api/episodes/ingest-url", json={"url": site, "project": "acme/api", "instance": "web"})
    assert reply.status_code == 201, reply.text
    assert (reply.json()["filename"], reply.json()["url"]) == ("ledger.html", site)
    hit = found(client, "okapi buffer")[0]
    assert (hit["instance"], "<p>" in hit["excerpt"]) == ("web", False)
    refused = client.post("/api/episodes/ingest-url", json={"url": "http://inside.test/"})
    assert "public internet" in problem(refused)["detail"]


def test_no_page_is_fetched_under_local_only(client: TestClient) -> None:
    refused = client.post("/api/episodes/ingest-url", json={"url": "http://93.184.216.34/"})
    assert "LOCAL_ONLY" in problem(refused)["detail"]
