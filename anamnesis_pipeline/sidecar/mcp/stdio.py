"""`anamnesis mcp`: the tools over standard input and output, for clients that start a process.

The SDK takes about a second to import. A client waits for the answer to `initialize`, so that is sent first; the SDK
then gets the request too, and its own identical answer is dropped.
"""

import json
import os
import sys
from collections.abc import AsyncIterator, Mapping
from typing import IO

from anamnesis_pipeline.sidecar.mcp.handshake import answer_to, package_version

PARSE_ERROR = -32700
"""https://www.jsonrpc.org/specification#error_object"""


def main() -> int:
    """Serve until the client closes standard input. Exit status 1: the settings are invalid."""
    first = sys.stdin.buffer.readline()
    reply = answer_to(first)
    if reply is not None:
        _write(sys.stdout.buffer, json.dumps(reply, separators=(",", ":")))
    return _serve(first, answered=reply["id"] if reply else None) if first else 0


def working_folder(environment: Mapping[str, str]) -> str | None:
    """Return the client's project folder from Claude Code's variable, else the working directory."""
    try:
        return environment.get("CLAUDE_PROJECT_DIR") or os.getcwd()
    except OSError:  # it was deleted
        return None


def _serve(first: bytes, answered: int | str | None) -> int:
    import anyio  # late: the SDK's import takes a second
    from mcp.server.stdio import stdio_server

    from anamnesis_pipeline import settings as settings_file
    from anamnesis_pipeline.errors import AnamnesisError
    from anamnesis_pipeline.runtime.up_lock import sidecar_in_use
    from anamnesis_pipeline.sidecar.mcp.client import RemoteTools, open_http
    from anamnesis_pipeline.sidecar.mcp.server import build_server

    try:
        settings = settings_file.load()
    except AnamnesisError as exc:
        print(f"anamnesis mcp: {exc}", file=sys.stderr)  # noqa: T201 - for the person who set it up
        return 1
    address, folder = sidecar_in_use(settings), working_folder(os.environ)
    token = settings.api_token.get_secret_value() if settings.api_token else None

    async def serve() -> None:
        async with open_http(address, token) as http:
            server = build_server(RemoteTools(http, address), package_version(), lambda _: folder)
            lines, output = _Input(first, sys.stdin.buffer, sys.stdout.buffer), _Output(sys.stdout.buffer, answered)
            async with stdio_server(lines, output) as (incoming, outgoing):  # type: ignore[arg-type]
                await server.run(incoming, outgoing, server.create_initialization_options())

    anyio.run(serve)
    return 0


class _Input:
    """Lines of a client, including the first one, which was read before. Invalid UTF-8 is replaced. Invalid or too
    deeply nested JSON gets a JSON-RPC error, since the SDK would not answer.
    """

    def __init__(self, first: bytes, rest: IO[bytes], out: IO[bytes]) -> None:
        self._first = first
        self._rest = rest
        self._out = out

    async def __aiter__(self) -> AsyncIterator[str]:
        import anyio.to_thread
        from pydantic_core import from_json

        line = self._first
        while line:
            text = line.decode("utf-8", "replace")
            try:
                if text.strip():
                    from_json(text)
                    yield text
            except ValueError as exc:
                error = {"code": PARSE_ERROR, "message": f"Parse error: {exc}"}
                _write(self._out, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}))
            line = await anyio.to_thread.run_sync(self._rest.readline, abandon_on_cancel=True)


class _Output:
    """Lines to a client, without the answer that was already sent.

    :param answered: the id of that request; None: there is none.
    """

    def __init__(self, out: IO[bytes], answered: int | str | None) -> None:
        self._out = out
        self._answered = answered

    async def write(self, text: str) -> None:
        """Write one message with its line end."""
        if self._answered is not None:
            message = json.loads(text)
            if message.get("id") == self._answered and "method" not in message:
                self._answered = None
                return
        _write(self._out, text.rstrip("\n"))

    async def flush(self) -> None:
        """Do nothing: each message is sent at once."""


def _write(out: IO[bytes], text: str) -> None:
    out.write(text.encode() + b"\n")
    out.flush()


if __name__ == "__main__":
    sys.exit(main())
