"""Dagster's own pages through the guard before them, and a page of another origin that tries to command them."""

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect, sync_playwright

from anamnesis_tests.browser.conftest import CHROMIUM, WAIT_MS
from anamnesis_tests.support.live_system import System

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

RUN_MS = 300_000
FOREIGN = "http://evil.example"
REPOSITORY = {"repositoryName": "__repository__", "repositoryLocationName": "anamnesis"}
SENSOR = {**REPOSITORY, "sensorName": "crawl_sensor"}
STATE = (
    "query($s: SensorSelector!) { sensorOrError(sensorSelector: $s) { ... on Sensor { sensorState { id status } } } }"
)


@pytest.fixture(scope="module")
def dagster_page(system: System) -> Iterator[Page]:
    """A window in which evil.example is this machine, as after DNS rebinding."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    with sync_playwright() as playwright:
        arguments = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP evil.example 127.0.0.1"]
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=arguments)
        page = browser.new_context(base_url=f"http://127.0.0.1:{system.dagster_port}").new_page()
        page.set_default_timeout(WAIT_MS)
        yield page
        browser.close()


@pytest.fixture
def foreign_port() -> Iterator[int]:
    """Where a server answers whose pages are empty."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<body></body>")

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield int(server.server_address[1])
        server.shutdown()


def test_asset_is_materialized_and_its_logs_arrive_live(dagster_page: Page) -> None:
    page = dagster_page
    page.goto("/locations/anamnesis/jobs/draw_map")
    page.get_by_role("button", name="Materialize").first.click()
    confirm, launched = page.get_by_role("button", name="Confirm"), page.locator("a[href*='/runs/']").first
    expect(confirm.or_(launched)).to_be_visible(timeout=WAIT_MS * 2)
    if confirm.is_visible():  # something upstream of it was never materialized
        confirm.click()
    expect(launched).to_be_visible(timeout=WAIT_MS * 2)
    run = launched.get_attribute("href")
    assert run is not None
    frames: list[str] = []
    page.on("websocket", lambda opened: opened.on("framereceived", lambda frame: frames.append(str(frame))))
    page.goto(run)
    expect(page.get_by_text(re.compile("^RUN_(SUCCESS|FAILURE|CANCELED)$")).first).to_be_visible(timeout=RUN_MS)
    assert any("pipelineRunLogs" in frame for frame in frames)


def test_page_of_another_origin_commands_nothing(dagster_page: Page, system: System, foreign_port: int) -> None:
    """By picture, frame, link of a form, fetch, websocket, and with its own name leading to the port."""
    page, port = dagster_page, system.dagster_port

    def state() -> dict[str, str]:
        found: dict[str, str] = system.graphql(STATE, {"s": SENSOR})["sensorOrError"]["sensorState"]
        return found

    before = state()
    assert before["status"] == "RUNNING"
    mutation = f'mutation {{ stopSensor(id: "{before["id"]}") {{ __typename }} }}'
    attack = f"""
        const mutation = {json.dumps(mutation)}, query = "query=" + encodeURIComponent(mutation);
        const body = JSON.stringify({{query: mutation}});
        const done = [];
        for (const host of ["127.0.0.1:{port}", "localhost:{port}", "evil.example:{port}"]) {{
            const url = `http://${{host}}/graphql`;
            const image = new Image();
            done.push(new Promise((end) => {{ image.onload = image.onerror = end; }}));
            image.src = `${{url}}?${{query}}`;
            for (const type of ["text/plain", "application/x-www-form-urlencoded", "application/json"])
                for (const address of [url, `${{url}}?${{query}}`])
                    for (const mode of ["cors", "no-cors"])
                        done.push(fetch(address, {{method: "POST", body, mode, headers: {{"Content-Type": type}}}})
                            .catch(() => 0));
            done.push(fetch(`${{url}}?${{query}}`, {{mode: "no-cors", credentials: "include"}}).catch(() => 0));
            const frame = document.createElement("iframe");
            frame.name = host;
            done.push(new Promise((end) => {{ frame.onload = end; }}));
            document.body.append(frame);
            const form = document.createElement("form");
            Object.assign(form, {{method: "post", action: `${{url}}?${{query}}`, enctype: "text/plain", target: host}});
            document.body.append(form);
            form.submit();
            const socket = new WebSocket(`ws://${{host}}/graphql`, "graphql-ws");
            done.push(new Promise((end) => {{
                socket.onclose = () => end();
                socket.onopen = () => end(opened.push(host));
            }}));
        }}
        const opened = [];
        await Promise.all(done);
        return opened;
    """
    sent: list[str] = []
    page.on("request", lambda request: sent.append(request.url))
    page.goto(f"{FOREIGN}:{foreign_port}/")
    assert page.evaluate(f"async () => {{ {attack} }}") == []
    assert sum("/graphql" in url for url in sent) > 20
    assert state() == before
    refused = page.goto(f"{FOREIGN}:{port}/")
    assert refused is not None
    assert refused.status == 421
