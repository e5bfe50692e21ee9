"""A taken port is named, with its owner and the variable that helps."""

import os
import socket
from collections.abc import Iterator

import pytest

from anamnesis_pipeline.errors import BadSetting, PortInUse
from anamnesis_pipeline.supervisor.ports import WantedPort, require_free


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def want(port: int, variable: str = "ANAMNESIS_PORT", host: str = "127.0.0.1") -> WantedPort:
    return WantedPort("the sidecar", host, port, variable)


def test_a_taken_port_is_named_with_its_owner_and_the_variable_that_changes_it(taken: int) -> None:
    with pytest.raises(PortInUse, match=rf"port {taken} .*process {os.getpid()}.*ANAMNESIS_PORT"):
        require_free([want(taken)])


def test_a_port_taken_on_all_addresses_is_taken_on_loopback_too() -> None:
    with socket.create_server(("0.0.0.0", 0)) as server, pytest.raises(PortInUse):
        require_free([want(server.getsockname()[1])])


def test_a_port_that_was_just_released_is_free() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), server.accept()[0]:
            pass
    require_free([want(port)])


def test_two_services_on_one_port_are_refused_with_both_variables() -> None:
    with pytest.raises(BadSetting, match="ANAMNESIS_PORT and ANAMNESIS_DAGSTER_PORT are both 4000"):
        require_free([want(4000), want(4000, "ANAMNESIS_DAGSTER_PORT")])


def test_an_address_of_another_machine_is_a_bad_setting() -> None:
    with pytest.raises(BadSetting, match=r"ANAMNESIS_BIND = '192\.0\.2\.1'"):
        require_free([want(4000, host="192.0.2.1")])
