"""How often the code server is asked whether it is still the same, by Dagster's own thread that asks."""

import time
from types import SimpleNamespace
from typing import Any

import pytest
from dagster._grpc import server_watcher
from dagster._grpc.client import DagsterGrpcClient

from anamnesis_pipeline.defs import code_server_watch
from anamnesis_pipeline.defs.code_server_watch import watch_less_often


def questions_within(seconds: float) -> int:
    asked: list[str] = []

    class Client(DagsterGrpcClient):
        def get_server_id(self, *_: Any, **__: Any) -> str:
            asked.append("same")
            return "same"

    def nothing(*_: Any) -> None:
        pass

    end, thread = server_watcher.create_grpc_watch_thread(
        "memory", Client(port=1), get_location_entry=lambda _: SimpleNamespace(load_error=None),
        refresh_code_location=nothing, on_disconnect=nothing, on_reconnected=nothing, on_updated=nothing,
        on_error=nothing,
    )  # fmt: skip
    thread.start()
    time.sleep(seconds)
    end.set()
    thread.join()
    return len(asked)


def test_the_code_server_is_asked_as_often_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watcher, "WATCH_INTERVAL", server_watcher.WATCH_INTERVAL)
    monkeypatch.setattr(code_server_watch, "WATCHED_EVERY_S", 0.1)
    before = questions_within(1.5)
    watch_less_often()
    assert before <= 3
    assert questions_within(1.5) >= 8
