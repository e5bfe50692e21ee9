import hashlib
from datetime import UTC, datetime
from importlib.resources import files
from urllib.parse import quote

import pytest
from starlette.testclient import TestClient

from anamnesis_pipeline.services.dagster.api import ASSET_PAGES
from anamnesis_pipeline.sidecar.web import html, static
from anamnesis_pipeline.sidecar.web.html import NAVIGATION
from anamnesis_tests.sidecar.conftest import Post, problem
from anamnesis_tests.support.page_reading import PAGE, SCRIPT, page_of, read

VENDORED = {
    "htmx.min.js": "d6fdc75f204e6bdefa99b69bf1e6d4ac69b8a364f77929f45c13476b4000f717",
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


@pytest.mark.parametrize("name", VENDORED)
def test_libraries_of_others_are_as_their_packages_have_them(name: str) -> None:
    content = (files(static.__package__) / "static" / "vendor" / name).read_bytes()
    assert hashlib.sha256(content).hexdigest() == VENDORED[name]


def test_file_is_cached_for_good_by_its_digest(client: TestClient) -> None:
    reply = client.get(static.address("app.css"))
    assert reply.headers["content-type"] == "text/css; charset=utf-8"
    assert reply.headers["cache-control"] == "public, max-age=31536000, immutable"
    assert hashlib.sha256(reply.content).hexdigest().startswith(static.address("app.css").split("/")[2])
    reply = client.get("/static/000000000000/app.css")
    assert (reply.status_code, reply.headers["cache-control"]) == (200, "no-store"), "of another version"


def test_no_other_file_is_served(client: TestClient) -> None:
    for name in ("../html.py", "..%2fhtml.py", "vendor/../../login.py", "vendor/README.md", "nope.js", ""):
        assert client.get(f"/static/x/{name}").status_code == 404, name


def test_every_page_is_ours_alone_and_in_its_frame(client: TestClient) -> None:
    for path in (link.path for link in NAVIGATION):
        reply = client.get(path, headers=PAGE)
        assert reply.headers["content-security-policy"] == html.POLICY
        soup = page_of(reply)
        assert len(soup.find_all("h1")) == 1, path
        assert [each["href"] for each in soup.select("nav [aria-current=page]")] == [path]
        for element in soup.select("[src], link[href]"):
            assert (element.get("src") or element["href"]).startswith("/static/"), path
        assert not soup.select("script:not([src]), style, [style]"), path
        names = [name for element in soup.find_all(True) for name in element.attrs]
        assert not [name for name in names if name.startswith(("on", "hx-on"))], path
        labels = {label["for"] for label in soup.select("label[for]")}
        fields = soup.select("main input:not([type=hidden], [type=checkbox]), main select, main textarea")
        assert [each for each in fields if each.get("id") not in labels and not each.get("aria-label")] == [], path
        keys = [each["data-go-key"] for each in soup.select("[data-go-key]")]
        assert len(keys) == len(set(keys))
        for asset in (asset for asset, of in ASSET_PAGES.items() if of == path):
            links = [str(link.get("href")) for link in soup.select("main a")]
            assert any(link.endswith(f":3000/assets/{asset}") for link in links), asset
    assert set(ASSET_PAGES.values()) <= {link.path for link in NAVIGATION}


def test_stored_script_stays_text(client: TestClient, post: Post) -> None:
    for name in ("x", "<b>&'\"", SCRIPT):
        post(
            f"{SCRIPT} <script>alert('roof')</script> {name}",
            episode_id=name,
            raw_exchange=f"{SCRIPT} roof",
            tags=[SCRIPT],
            project=SCRIPT,
            instance=SCRIPT,
            kind=SCRIPT[:50],
            metadata={SCRIPT: SCRIPT, "notes": [{"at": SCRIPT, "text": SCRIPT}], "consolidated_from": [SCRIPT]},
        )
    script = quote(SCRIPT, safe="")
    for path in (
        "",
        "/episodes",
        "/timeline",
        "/events",
        "/search?q=roof&explain=1",
        "/episodes/x",
        f"/episodes/{script}",
        f"/context?project={script}&query=roof+{script}",
        "/episode/text?episode_id=x",
        "/episode/similar?episode_id=x",
        f"/episode/successors?episode_id=x&q={script}",
    ):
        soup = read(client, f"/dashboard{path}")
        assert not soup.select("main script, body > script:not([src]), b script"), path
        assert "alert(1)" in (soup.main or soup).text, path


def test_an_unknown_page_is_told_as_a_page(client: TestClient) -> None:
    reply = client.get("/dashboard/nonsense", headers=PAGE)
    assert (reply.status_code, "There is no such page." in reply.text) == (404, True)
    problem(client.get("/dashboard/nonsense"), 404)


def test_slash_at_the_end_of_an_address_is_forgiven(client: TestClient) -> None:
    for typed in ("/dashboard/", "/dashboard/search/?q=a%20crane", "/chat/", "/dashboard//example.org/"):
        reply = client.get(typed, headers=PAGE, follow_redirects=False)
        path, mark, query = typed.partition("?")
        assert (reply.status_code, reply.headers["location"]) == (307, path.removesuffix("/") + mark + query)


def test_a_moment_is_a_time_that_the_browser_writes_in_its_zone() -> None:
    moment = html.moment(datetime(2026, 3, 1, 12, 30, 5, tzinfo=UTC))
    assert moment == '<time datetime="2026-03-01T12:30:05Z">2026-03-01 12:30 UTC</time>'
    assert html.moment("2026-03-01T12:30:05Z") == moment
    assert "never" in html.moment(None)


def test_numbers_are_written_for_people() -> None:
    assert [html.count(1_234_567), html.count(None)] == ["1,234,567", "–"]
    assert [html.share(0.734), html.share(None)] == ["73%", "–"]
    assert [html.size(900), html.size(1536), html.size(5e9)] == ["900 B", "1.5 kB", "5.0 GB"]
