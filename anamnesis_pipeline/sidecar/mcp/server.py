"""The tools as an MCP server of the official SDK, shared by both transports."""

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server

from anamnesis_pipeline.errors import AnamnesisError
from anamnesis_pipeline.sidecar.mcp.definitions import definitions
from anamnesis_pipeline.sidecar.mcp.handshake import INSTRUCTIONS, SERVER_NAME

log = logging.getLogger(__name__)

FolderOf = Callable[[Any], str | None]
"""Maps the HTTP request of a call, or None, to the client's working directory."""


class Tools(Protocol):
    """The tools of this process (`tools.LocalTools`), or those of a running sidecar (`client.RemoteTools`)."""

    async def call(self, name: str, given: Mapping[str, Any] | None, folder: str | None) -> str:
        """Return the text answer of a tool, or raise an AnamnesisError for the client to read."""


def build_server(tools: Tools, version: str, folder_of: FolderOf) -> Server[Any]:
    """Return a server that lists and calls `tools`."""
    listed = [types.Tool.model_validate(definition) for definition in definitions()]

    async def list_tools(
        _context: ServerRequestContext[Any, Any], _params: types.PaginatedRequestParams | None
    ) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        try:
            text = await tools.call(params.name, params.arguments, folder_of(context.request))
        except AnamnesisError as exc:
            return _answer(str(exc), is_error=True)
        except Exception:
            log.exception("the tool %s failed", params.name[:40])
            return _answer("the memory failed in a way it should not; go on without it", is_error=True)
        return _answer(text)

    return Server(
        SERVER_NAME, version=version, instructions=INSTRUCTIONS, on_list_tools=list_tools, on_call_tool=call_tool
    )


def _answer(text: str, *, is_error: bool = False) -> types.CallToolResult:
    return types.CallToolResult(content=[types.TextContent(type="text", text=text)], is_error=is_error)
