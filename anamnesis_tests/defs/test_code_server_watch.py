"""How often the code server is asked whether it is still the same, by Dagster's own thread that asks."""

from types import SimpleNamespace
from typing import Any

import pytest
from dagster._grpc import server_watcher
from dagster._grpc.client import DagsterGrpcClient

from anamnesis_pipeline.defs.code_server_watch import WATCHED_EVERY_S, watch_less_often


def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long it waits after each of its first questions."""
    waited: list[float] = []
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

    def wait(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            end.set()

    monkeypatch.setattr(end, "wait", wait)
    thread.start()
    thread.join(60)
    assert not thread.is_alive()
    assert len(asked) >= len(waited)
    return waited


def test_the_code_server_is_asked_as_often_as_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_watcher, "WATCH_INTERVAL", server_watcher.WATCH_INTERVAL)
    before = pauses(monkeypatch)
    watch_less_often()
    assert (before, pauses(monkeypatch)) == ([1] * 3, [WATCHED_EVERY_S] * 3)
    assert WATCHED_EVERY_S > 1
