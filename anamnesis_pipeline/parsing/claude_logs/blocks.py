"""Content blocks as text to read and to search. Strings stay verbatim; binary data becomes a reference."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Any

_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]{256,}=*\s*")
_PLAIN = re.compile(r"[a-z0-9_\r\n-]*|[A-Z0-9_\r\n-]*")
"""Words and hexadecimal digits; base64 of this length has both small and capital letters."""
_RUN = re.compile(
    r"(?:data:([\w.+-]+/[\w.+-]+)(?:;[\w=.+-]+)*;base64,|(?<![\w+/-]))("
    r"[A-Za-z0-9+/]{60,76}(?:\r?\n[A-Za-z0-9+/]{60,76}){3,}(?:\r?\n[A-Za-z0-9+/]{1,75}(?=[=\s]|\Z))?={0,2}|"
    r"[A-Za-z0-9+/_-]{256,}={0,2})"
)
"""Base64 inside other text, with the type from a data URL: lines as encoders break them, or one run."""
_SHORTEST_RUN = 240
_SURE = 2_000
"""A run of at least this length is no path or identifier, in any mix of letters."""
_SAMPLE = 8_192
"""Characters of a run that are checked."""
_STANDARD = str.maketrans("-_", "+/", "\r\n")
_WITH_BYTES = frozenset({"image", "document", "audio", "video"})
_GIT_COMMIT = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")


_PREVIEW = "<persisted-output>"
_SAVED_TO = re.compile(r"saved to: ([^\n]+)")
_PREVIEW_HEAD = 2_000
"""Characters of a preview that are searched for the path of the whole text."""


def tool_input_text(name: str, value: Any) -> str:
    """Return the tool's name on a separate line, then one `key: value` per input.

    Strings are verbatim, line breaks included. Other values are compact JSON, unless that would escape characters: then
    each inner value gets a line, so that code inside an edit list can be read and found.
    """
    inputs = value if isinstance(value, dict) else {"input": value}
    return "".join((name, *(piece for key, item in inputs.items() for piece in _lines(str(key), item))))


def result_text(content: Any) -> str:
    """Return the text of a tool result's content: a string, an array of blocks, or nothing."""
    if isinstance(content, str):
        return without_runs(content)
    if isinstance(content, list):
        return "\n".join(text for text in map(_block_text, content) if text)
    return "" if content is None else _compact(without_blobs(content))


def saved_to(text: str) -> str:
    """Return the path in a preview of the file with the whole of a moved result; else empty."""
    found = _SAVED_TO.search(text, 0, _PREVIEW_HEAD) if text.startswith(_PREVIEW) else None
    return found[1].strip() if found else ""


def reference(block: Mapping[str, Any]) -> str:
    """Return the reference that replaces a file: kind, media type, size and hash, never its bytes. An MCP resource that
    is text gives its text, a link to one its name.
    """
    kind, source = str(block.get("type", "file")), block.get("source", block.get("resource"))
    source = source if isinstance(source, dict) else block
    title = f", {block['title']}" if isinstance(block.get("title"), str) else ""
    data, uri = source.get("data", source.get("blob")), source.get("uri")
    media_type = source.get("media_type") or source.get("mimeType")
    if kind == "resource" and isinstance(source.get("text"), str):
        return f"[{kind} {uri or ''}{title}]\n{without_runs(source['text'])}"
    if source.get("type") == "text" and isinstance(data, str):
        return f"[{kind} {media_type or 'text/plain'}{title}]\n{data}"
    if isinstance(data, str):
        of = f", {uri}" if isinstance(uri, str) else ""
        return f"[{kind} {media_type or 'unknown'}, {_fingerprint(data)}{of}{title}]"
    if kind == "resource_link":
        return f"[{kind} {block.get('name') or uri or ''}]"
    place = source.get("url") or source.get("file_id") or (source.get("type") if source is not block else "") or ""
    return f"[{f'{kind} {place}'.rstrip()}{title}]"


def without_blobs(value: Any) -> Any:
    """Return `value` with every file and every run of base64 replaced by its size and hash."""
    if isinstance(value, str):
        return without_runs(value)
    if isinstance(value, list):
        return [without_blobs(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _is_file(value):
        return reference(value)
    return {
        key: f"[{_fingerprint(item)}]" if _is_blob(key, item) else without_blobs(item) for key, item in value.items()
    }


def without_runs(text: str) -> str:
    """Return `text` with each run of base64 replaced by its type, if known, its size and hash."""
    return _RUN.sub(_run_reference, text) if len(text) >= _SHORTEST_RUN else text


def _run_reference(found: re.Match[str]) -> str:
    media_type, run = found[1], found[2]
    head = run[:_SAMPLE]
    is_of_path = ("/" in head or "+" in head) and ("-" in head or "_" in head)
    counts = [sum(map(head.count, letters)) for letters in (ascii_uppercase, ascii_lowercase, digits)]
    is_mixed = min(counts[:2]) * 7 >= len(head) and counts[2] * 25 >= len(head)
    is_long = len(run) >= _SURE and min(counts) > 0
    is_bytes = media_type or (not is_of_path and (is_mixed or is_long))
    return f"[{media_type or 'base64'}, {_fingerprint(run)}]" if is_bytes else found[0]


def is_milestone(name: str, value: Any) -> bool:
    """Return whether this tool call ends a step of work: a to-do done, or a commit."""
    if not isinstance(value, dict):
        return False
    if name == "TodoWrite":
        todos = value.get("todos")
        return isinstance(todos, list) and any(isinstance(t, dict) and t.get("status") == "completed" for t in todos)
    if name == "TaskUpdate":
        return value.get("status") == "completed"
    command = value.get("command")
    return isinstance(command, str) and _GIT_COMMIT.search(command) is not None


def _lines(key: str, value: Any) -> Iterator[str]:
    """Yield the pieces of some lines, each with its line break before it. Avoids copying a value of 50 MB."""
    if isinstance(value, str):
        yield from ("\n", key, ": ", f"[{_fingerprint(value)}]" if _is_blob(key, value) else value)
        return
    value = without_blobs(value)
    compact = _compact(value)
    if "\\" not in compact:
        yield from ("\n", key, ": ", compact)
    elif isinstance(value, dict):
        for inner, item in value.items():
            yield from _lines(f"{key}.{inner}", item)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _lines(f"{key}[{index}]", item)
    else:
        yield from ("\n", key, ": ", str(value))


def _block_text(block: Any) -> str:
    if isinstance(block, str):
        return without_runs(block)
    if not isinstance(block, dict):
        return _compact(block)
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return without_runs(block["text"])
    is_file = block.get("type") in {"image", "document"} or _is_file(block)
    return reference(block) if is_file else _compact(without_blobs(block))


def _is_file(block: Mapping[str, Any]) -> bool:
    """Return whether a value is a file in the form of the API or MCP, or a link to one."""
    kind, inner = block.get("type"), block.get("resource")
    if kind == "resource":
        return isinstance(inner, dict) and any(isinstance(inner.get(body), str) for body in ("blob", "text"))
    if kind == "resource_link":
        return isinstance(block.get("uri"), str)
    is_of_mcp = isinstance(block.get("data"), str) and isinstance(block.get("mimeType"), str)
    return kind in _WITH_BYTES and (isinstance(block.get("source"), dict) or is_of_mcp)


def _is_blob(key: Any, value: Any) -> bool:
    is_candidate = key in {"data", "blob", "encrypted_content"} and isinstance(value, str) and len(value) >= 256
    return is_candidate and _BASE64.fullmatch(value) is not None and not _PLAIN.fullmatch(value)


def _fingerprint(data: str) -> str:
    plain = data.translate(_STANDARD).rstrip("=")
    try:
        raw = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError):
        raw = data.encode("utf-8", "replace")
    return f"{len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()[:12]}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
