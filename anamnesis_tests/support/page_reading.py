"""Pages as whoever uses them has them: read, with a form sent, with a button pressed."""

from typing import Any

from bs4 import BeautifulSoup, Tag
from httpx2 import Response
from starlette.testclient import TestClient

PAGE = {"Accept": "text/html"}
SCRIPT = "<script>alert(1)</script>"
"""Stored by tests, and never more than a text of a page."""


def page_of(reply: Response, code: int = 200) -> BeautifulSoup:
    assert reply.status_code == code, reply.text
    assert "<script>alert" not in reply.text
    return BeautifulSoup(reply.text, "lxml")


def read(client: TestClient, path: str, code: int = 200, **asked: Any) -> BeautifulSoup:
    return page_of(client.get(path, params=asked or None, headers=PAGE), code)


def send(client: TestClient, path: str, **data: Any) -> BeautifulSoup:
    return page_of(client.post(path, data=data))


def press(client: TestClient, page: BeautifulSoup, button_id: str) -> BeautifulSoup:
    """What a click on a button leads to."""
    button = page.find(id=button_id)
    assert isinstance(button, Tag), f"there is no button {button_id}"
    name = button.get("name")
    return send(client, str(button["hx-post"]), **({str(name): str(button["value"])} if name else {}))


def problem_of(page: BeautifulSoup) -> str:
    alert = page.select_one("[role=alert]")
    assert alert is not None
    return alert.text
