"""Dagster's code server in a container: `python -m anamnesis_pipeline.defs.container_code_server`, and what
`dagster api grpc` takes. Its main thread, which only waits for the end, wakes up less often.
"""

from dagster._cli.api import grpc_command
from grpc import _common

AWAKE_EVERY_S = 30.0
"""By itself ten times a second, so that signals are heard at once, as they are without it since Python 3.2: a lock that
is waited for is let go by a handler (https://docs.python.org/3/whatsnew/3.2.html, threading)."""


def sleep_longer() -> None:
    """From here on this process's waits for gRPC are not looked at in between."""
    _common.MAXIMUM_WAIT_TIMEOUT = AWAKE_EVERY_S


if __name__ == "__main__":
    sleep_longer()
    grpc_command(auto_envvar_prefix="DAGSTER_CLI_API_GRPC")
