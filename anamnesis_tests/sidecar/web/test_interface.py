import re

from starlette.testclient import TestClient

from anamnesis_tests.support.page_reading import PAGE


def test_interface_page_loads_swagger_ui_from_this_server(client: TestClient) -> None:
    reply = client.get("/docs", headers=PAGE)
    loaded = re.findall(r'(?:src|href)="(/static/[^"]*(?:swagger-ui|interface)[^"]*)"', reply.text)
    assert len(loaded) == 3
    assert all(client.get(path).headers["cache-control"].startswith("public") for path in loaded)
    assert not re.findall(r"(?:src|href)=\"(?:https?:)?//", reply.text.replace("http://127.0.0.1", ""))
    assert "script-src 'self'" in reply.headers["content-security-policy"]


def test_bare_address_leads_to_the_pages(client: TestClient) -> None:
    led = client.get("/", headers=PAGE, follow_redirects=False)
    assert (led.status_code, led.headers["location"]) == (307, "/dashboard")
