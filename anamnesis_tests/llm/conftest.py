"""A port on which nobody listens."""

import socket

import pytest


@pytest.fixture
def free_port() -> int:
    """A port of loopback on which nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
