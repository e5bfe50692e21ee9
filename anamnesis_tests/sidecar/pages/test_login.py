from collections.abc import Iterator
from pathlib import Path

import pytest
from bs4 import BeautifulSoup
from starlette.testclient import TestClient

from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.security import COOKIE
from anamnesis_tests.sidecar.conftest import BASE, open_services
from anamnesis_tests.sidecar.pages.reading import PAGE

TOKEN = "correct horse battery staple"
FORM = {"Origin": BASE}


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[TestClient]:
    services = open_services(tmp_path, api_token=TOKEN)
    with TestClient(create_app(services), base_url=BASE, follow_redirects=False) as client:
        yield client


def test_who_opens_a_page_is_led_to_the_form_and_after_it_to_the_page(guarded: TestClient) -> None:
    led = guarded.get("/dashboard/episodes?project=a%26b", headers=PAGE)
    assert (led.status_code, led.headers["location"]) == (303, "/login?next=/dashboard/episodes%3Fproject%3Da%2526b")
    form = BeautifulSoup(guarded.get(led.headers["location"], headers=PAGE).text, "lxml").form
    assert form is not None
    after = form.find("input", {"name": "after"})["value"]
    let_in = guarded.post("/login", data={"token": f" {TOKEN}\n", "after": after}, headers=FORM)
    assert (let_in.status_code, let_in.headers["location"]) == (303, "/dashboard/episodes?project=a%26b")
    assert guarded.get("/dashboard", headers=PAGE).status_code == 200
    assert guarded.get("/api/episodes").status_code == 200


def test_the_way_back_to_a_long_search_is_kept(guarded: TestClient) -> None:
    wanted = "/dashboard/search?q=" + "harbour+" * 1_000 + "crane"
    led = guarded.get(wanted, headers=PAGE)
    assert guarded.get(led.headers["location"], headers=PAGE).status_code == 200
    let_in = guarded.post("/login", data={"token": TOKEN, "after": wanted}, headers=FORM)
    assert let_in.headers["location"] == wanted


def test_the_cookie_is_no_token_and_no_script_reads_it(guarded: TestClient) -> None:
    cookie = guarded.post("/login", data={"token": TOKEN}, headers=FORM).headers["set-cookie"]
    assert TOKEN not in cookie
    assert {"HttpOnly", "SameSite=strict"} <= {piece.strip() for piece in cookie.split(";")}
    guarded.cookies.clear()
    assert guarded.get("/api/episodes", headers={"Cookie": f"{COOKIE}={TOKEN}"}).status_code == 401


def test_a_cookie_of_our_own_over_https_is_for_https_only(tmp_path: Path) -> None:
    services = open_services(tmp_path, api_token=TOKEN)
    with TestClient(create_app(services), base_url="https://127.0.0.1:3010", follow_redirects=False) as client:
        reply = client.post("/login", data={"token": TOKEN}, headers={"Origin": "https://127.0.0.1:3010"})
        assert "Secure" in reply.headers["set-cookie"]


def test_a_wrong_token_is_told_and_lets_nobody_in(guarded: TestClient) -> None:
    refused = guarded.post("/login", data={"token": "nonsense"}, headers=FORM)
    assert refused.status_code == 401
    assert "not the token" in refused.text
    assert "set-cookie" not in refused.headers
    assert guarded.get("/api/episodes").status_code == 401


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example/", "/\\evil.example", "/api/episodes", "/dashboardx", ""]
)
def test_nobody_lands_elsewhere_after_the_form(guarded: TestClient, elsewhere: str) -> None:
    reply = guarded.post("/login", data={"token": TOKEN, "after": elsewhere}, headers=FORM)
    assert reply.headers["location"] == "/dashboard"


def test_forms_of_other_sites_do_nothing(guarded: TestClient) -> None:
    foreign = {"Origin": "https://evil.example"}
    assert guarded.post("/login", data={"token": TOKEN}, headers=foreign).status_code == 403
    guarded.post("/login", data={"token": TOKEN}, headers=FORM)
    assert guarded.post("/logout", headers=foreign).status_code == 403


def test_who_logs_out_has_to_log_in_again(guarded: TestClient) -> None:
    guarded.post("/login", data={"token": TOKEN}, headers=FORM)
    guarded.post("/logout", headers=FORM)
    assert guarded.get("/dashboard", headers=PAGE).status_code == 303


def test_a_script_is_told_the_problem_and_not_led_anywhere(guarded: TestClient) -> None:
    for headers in ({"Accept": "application/json"}, {**PAGE, "HX-Request": "true"}):
        reply = guarded.get("/dashboard", headers=headers)
        assert (reply.status_code, reply.headers["content-type"]) == (401, "application/problem+json")


def test_without_a_token_there_is_no_login(client: TestClient) -> None:
    assert client.get("/dashboard", headers=PAGE).status_code == 200
    reply = client.get("/login", follow_redirects=False)
    assert (reply.status_code, reply.headers["location"]) == (303, "/dashboard")
