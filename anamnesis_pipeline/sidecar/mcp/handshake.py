"""The answer to `initialize` without the SDK, which takes a second to import while the client waits. Pure."""

import json
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from anamnesis_pipeline.sidecar.mcp.instructions import INSTRUCTIONS, SERVER_NAME

HANDSHAKE_VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""Protocol versions with `initialize`, as in the SDK."""


def answer_to(line: bytes) -> dict[str, Any] | None:
    """Return the answer to a valid `initialize` message; None for any other."""
    try:
        asked = json.loads(line)
        params = asked["params"]
        sound = (
            asked["jsonrpc"] == "2.0"
            and asked["method"] == "initialize"
            and isinstance(asked["id"], int | str)
            and isinstance(params["capabilities"], dict)
            and isinstance(params["clientInfo"]["name"], str)
            and isinstance(params["clientInfo"]["version"], str)
        )
        wanted = params["protocolVersion"]
    except (ValueError, KeyError, TypeError, RecursionError):  # RecursionError: deeply nested JSON
        return None
    if not sound or not isinstance(wanted, str):
        return None
    return {
        "jsonrpc": "2.0",
        "id": asked["id"],
        "result": {
            "protocolVersion": wanted if wanted in HANDSHAKE_VERSIONS else HANDSHAKE_VERSIONS[-1],
            "capabilities": {"tools": {"listChanged": False}},
            "serverInfo": {"name": SERVER_NAME, "version": package_version()},
            "instructions": INSTRUCTIONS,
        },
    }


def package_version() -> str:
    """Return the version of the installed package."""
    try:
        return version("anamnesis")
    except PackageNotFoundError:
        return "0+not-installed"
