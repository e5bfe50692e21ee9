from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from httpx2 import Response
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.security import COOKIE
from anamnesis_tests.sidecar.conftest import BASE, open_services, problem
from anamnesis_tests.support.page_reading import PAGE

TOKEN = "correct horse battery staple"


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    services = open_services(tmp_path, api_token=TOKEN)
    with TestClient(create_app(services), base_url=BASE, follow_redirects=False) as client:
        yield client


def test_login_form_leads_back_to_the_page(guarded: TestClient) -> None:
    led = guarded.get("/dashboard/episodes?project=a%26b", headers=PAGE)
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/dashboard/episodes%3Fproject%3Da%2526b")
    form = BeautifulSoup(guarded.get(led.headers["location"], headers=PAGE).text, "lxml").form
    after = form.find("input", {"name": "after"})["value"]
    let_in = enter(guarded, f" {TOKEN}\n", after)
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/dashboard/episodes?project=a%26b")
    assert guarded.get("/dashboard", headers=PAGE).status_code == 200
    assert guarded.get("/api/episodes").status_code == 200


def enter(client: TestClient, token: str = TOKEN, after: str = "", origin: str = BASE) -> Response:
    return client.post("/login", data={"token": token, "after": after}, headers={"Origin": origin})


def test_way_back_to_a_long_search_is_kept(guarded: TestClient) -> None:
    wanted = "/dashboard/search?q=" + "harbour+" * 1_000 + "crane"
    led = guarded.get(wanted, headers=PAGE)
    assert guarded.get(led.headers["location"], headers=PAGE).status_code == 200
    assert enter(guarded, after=wanted).headers["location"] == wanted


def test_cookie_is_no_token_and_no_script_reads_it(guarded: TestClient) -> None:
    cookie = enter(guarded).headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {piece.strip() for piece in cookie.split(";")}
    guarded.cookies.clear()
    assert guarded.get("/api/episodes", headers={"Cookie": f"{COOKIE}={TOKEN}"}).status_code == 401
    https = "https://127.0.0.1:3010"
    assert "Secure" in enter(TestClient(guarded.app, base_url=https), origin=https).history[0].headers["set-cookie"]


def test_wrong_token_lets_nobody_in(guarded: TestClient) -> None:
    refused = enter(guarded, "nonsense")
    assert (refused.status_code, "not the token" in refused.text) == (401, True)
    assert "set-cookie" not in refused.headers
    assert guarded.get("/api/episodes").status_code == 401


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "/api/episodes", "/dashboardx", ""]
)
def test_nobody_lands_elsewhere_after_the_form(guarded: TestClient, elsewhere: str) -> None:
    assert enter(guarded, after=elsewhere).headers["location"] == "/dashboard"


def test_forms_of_other_sites_do_nothing(guarded: TestClient) -> None:
    assert enter(guarded, origin="https://evil.example").status_code == 403
    enter(guarded)
    assert guarded.post("/logout", headers={"Origin": "https://evil.example"}).status_code == 403
    assert guarded.get("/dashboard", headers=PAGE).status_code == 200
    guarded.post("/logout", headers={"Origin": BASE})
    assert guarded.get("/dashboard", headers=PAGE).status_code == 303


def test_script_is_told_the_problem_and_not_redirected(guarded: TestClient) -> None:
    for headers in ({"Accept": "application/json"}, {**PAGE, "HX-Request": "true"}):
        problem(guarded.get("/dashboard", headers=headers), 401)


def test_without_a_token_there_is_no_login(client: TestClient) -> None:
    assert client.get("/dashboard", headers=PAGE).status_code == 200
    reply = client.get("/login", follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/dashboard")
