"""Clients that know nothing but the OpenAPI document: what it allows is accepted, what it forbids is refused, and
every reply is one that it describes.
"""

import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import cast

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.specs.openapi.checks import positive_data_acceptance

from anamnesis_pipeline.settings import Settings
from anamnesis_pipeline.sidecar.__main__ import listen
from anamnesis_pipeline.sidecar.app import create_app
from anamnesis_pipeline.sidecar.services import Services
from anamnesis_tests.sidecar.conftest import open_services, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

DEPENDS_ON_THE_MACHINE = {
    f"{method} /api/{path}"
    for method, paths in {
        "GET": "handoff",
        "POST": "blocklist episodes/bulk/edit episodes/ingest-url episodes/upload uploads embedding/cpu "
        "embedding/model crawler/run episodes/reembed forget jsonl/ingest sources/test",
        "PUT": "crawler/config/doc-tag-patterns crawler/config/jsonl-roots crawler/config/machine-roots "
        "embedding/config jsonl/settings sources sources/{name}",
    }.items()
    for path in paths.split()
}
"""Here a value may be refused that the document allows: no document can say which cores, models, sources and zones
there are, that one of several fields must say something, or which texts are a rule, an expression or a document.
"""

# The document depends on nothing but the settings; the application that answers is the fixture below.
_described = create_app(cast(Services, SimpleNamespace(settings=Settings())))
schema = schemathesis.openapi.from_dict(_described.openapi())
refusals = schema.config.checks.negative_data_rejection
refusals.expected_statuses = [*refusals.expected_statuses, "413"]  # a text that is too long can be a body that is


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server of this process; its address."""
    services = open_services(tmp_path_factory.mktemp("home"))
    server = uvicorn.Server(uvicorn.Config(create_app(services), log_config=None, access_log=False))
    with listen("127.0.0.1", 0) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        wait_for(lambda: services.pool.ready)
        base = f"http://127.0.0.1:{listener.getsockname()[1]}"
        draft = {"summary": "known", "instance": "mac", "project": "acme"}
        known = [{**draft, "episode_id": name} for name in ("0", "a/b")]
        assert httpx.post(f"{base}/api/episodes/bulk", json={"episodes": known}, timeout=60).json()["created"] == 2
        assert httpx.get(f"{base}/openapi.json", timeout=60).json() == schema.raw_schema
        yield base
        server.should_exit = True
        thread.join()


@schema.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_clients_that_know_only_the_document_get_along(case: Case, base: str) -> None:
    unsure = [positive_data_acceptance] if case.operation.label in DEPENDS_ON_THE_MACHINE else None
    case.call_and_validate(base_url=base, excluded_checks=unsure)
