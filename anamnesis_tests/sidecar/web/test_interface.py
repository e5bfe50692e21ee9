import re

from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.web.interface import groups_of, shapes_of, type_of
from anamnesis_tests.support.page_reading import PAGE, page_of


def test_every_operation_and_shape_is_on_the_page(client: TestClient) -> None:
    soup = page_of(client.get("/docs", headers=PAGE))
    assert soup.find(attrs={"hx-get": "/docs/shapes"})
    shapes = page_of(client.get("/docs/shapes"))
    document = client.get("/openapi.json").json()
    rows = [[cell.get_text(strip=True) for cell in summary.find_all("span")] for summary in soup.find_all("summary")]
    assert all(title for _, _, title in rows)
    assert {(method, path) for method, path, _ in rows} == {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    targets = {each["id"] for each in shapes.select("[id^=shape-]")}
    assert targets == {f"shape-{name}" for name in document["components"]["schemas"]}
    links = [*soup.select("a[href^='#shape-']"), *shapes.select("a[href^='#shape-']")]
    assert {each["href"][1:] for each in links} <= targets


def test_the_page_of_the_interface_loads_nothing_of_another_host(client: TestClient) -> None:
    reply = client.get("/docs", headers=PAGE)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", reply.text.replace("http://127.0.0.1", ""))
    assert "script-src 'self'" in reply.headers["content-security-policy"]
    assert len(reply.content) < 200_000


def test_what_an_operation_takes_is_told_with_its_types(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    (search,) = [each for each in groups_of(document)["search"] if each.path == "/api/episodes/search"]
    fields = {field.name: field for field in search.fields}
    assert fields["mode"].type == "one of hybrid, semantic, exact"
    assert fields["top_k"].type == "integer of 1 to 100"
    assert fields["tags"].type.startswith("list of text")
    assert search.shapes == ("SearchOut",)
    assert search.title == "Return the episodes that answer best, each with its best passage, verbatim"
    assert {field.name for field in shapes_of(document)["SearchOut"][1]} >= {"results", "degraded"}


def test_types_are_told_in_words() -> None:
    for words, schema in {
        "EpisodeOut": {"$ref": "#/components/schemas/EpisodeOut"},
        "list of HitOut": {"type": "array", "items": {"$ref": "#/components/schemas/HitOut"}},
        "text up to 2,000 characters or null": {"anyOf": [{"type": "string", "maxLength": 2000}, {"type": "null"}]},
        "one of done": {"const": "done"},
        "one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11 and 2 more": {"enum": list(range(14))},
        "object of integer": {"type": "object", "additionalProperties": {"type": "integer"}},
        "object": {"type": "object"},
        "any JSON": {},
    }.items():
        assert type_of(schema) == words


def test_bare_address_leads_to_the_pages(client: TestClient) -> None:
    led = client.get("/", headers=PAGE, follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (307, "/dashboard")
