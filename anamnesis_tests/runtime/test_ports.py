"""A taken port is named, with its owner and the variable that helps."""

import os
import socket

import pytest

from anamnesis_pipeline.errors import BadSetting, PortInUse
from anamnesis_pipeline.runtime.ports import WantedPort, require_free


def want(port: int, variable: str = "ANAMNESIS_PORT", host: str = "127.0.0.1") -> WantedPort:
    return WantedPort("the sidecar", host, port, variable)


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_taken_port_is_named_with_its_owner_and_variable(host: str) -> None:
    with socket.create_server((host, 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(PortInUse, match=rf"port {port} .*process {os.getpid()}.*ANAMNESIS_PORT"):
            require_free([want(port)])


def test_port_that_was_just_released_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass
    require_free([want(port)])


def test_ports_that_cannot_be_are_refused_with_their_variables() -> None:
    with pytest.raises(BadSetting, match="ANAMNESIS_PORT and ANAMNESIS_DAGSTER_PORT are both 4000"):
        require_free([want(4000), want(4000, "ANAMNESIS_DAGSTER_PORT")])
    with pytest.raises(BadSetting, match=r"ANAMNESIS_BIND = '192\.0\.2\.1'"):
        require_free([want(4000, host="192.0.2.1")])
