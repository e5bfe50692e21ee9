"""Content blocks as text to read and to search. Strings stay verbatim; binary data becomes a reference."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_BASE64 = re.compile(r"[A-Za-z0-9+/_\r\n-]{256,}=*\s*")
_PLAIN = re.compile(r"[a-z0-9_\r\n-]*|[A-Z0-9_\r\n-]*")
"""Words and hexadecimal digits; so many bytes in base64 have small and capital letters."""
_GIT_COMMIT = re.compile(r"\bgit\b[^|;&\n]*\bcommit\b")


_PREVIEW = "<persisted-output>"
_SAVED_TO = re.compile(r"saved to: ([^\n]+)")
_PREVIEW_HEAD = 2_000
"""Characters of a preview in which it says where the whole is."""


def tool_input_text(name: str, value: Any) -> str:
    """The tool's name on a line of its own, then one `key: value` per input.

    Strings are verbatim, line breaks included. Other values are compact JSON, unless that would escape something in
    them: then each inner value gets its own line, so that code inside an edit list can be read and found.
    """
    inputs = value if isinstance(value, dict) else {"input": value}
    return "".join((name, *(piece for key, item in inputs.items() for piece in _lines(str(key), item))))


def result_text(content: Any) -> str:
    """Text of a tool result's content: a string, an array of blocks, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(text for text in map(_block_text, content) if text)
    return "" if content is None else _compact(without_blobs(content))


def saved_to(text: str) -> str:
    """The path of the file with the whole of a result that the client moved out, which a preview names; else empty."""
    found = _SAVED_TO.search(text, 0, _PREVIEW_HEAD) if text.startswith(_PREVIEW) else None
    return found[1].strip() if found else ""


def reference(block: Mapping[str, Any]) -> str:
    """What stands for an image or document: kind, media type, size and hash, never its bytes."""
    kind, source = str(block.get("type", "file")), block.get("source")
    title = f", {block['title']}" if isinstance(block.get("title"), str) else ""
    if not isinstance(source, dict):
        return f"[{kind}{title}]"
    data = source.get("data")
    if source.get("type") == "text" and isinstance(data, str):
        return f"[{kind} {source.get('media_type', 'text/plain')}{title}]\n{data}"
    if isinstance(data, str):
        return f"[{kind} {source.get('media_type', 'unknown')}, {_fingerprint(data)}{title}]"
    place = source.get("url") or source.get("file_id") or source.get("type") or ""
    return f"[{kind} {place}{title}]"


def without_blobs(value: Any) -> Any:
    """`value` with every base64 body under a `data` key replaced by its size and hash."""
    if isinstance(value, list):
        return [without_blobs(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _is_file(value) and isinstance(value.get("source"), dict):
        return reference(value)
    return {
        key: f"[{_fingerprint(item)}]" if _is_blob(key, item) else without_blobs(item) for key, item in value.items()
    }


def is_milestone(name: str, value: Any) -> bool:
    """Whether this tool call ends a step of work: a to-do done, or a commit."""
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
    """The pieces of some lines, each with its line break before it. A value of 50 MB is not copied for its line."""
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
        return block
    if not isinstance(block, dict):
        return _compact(block)
    if block.get("type") == "text" and isinstance(block.get("text"), str):
        return str(block["text"])
    return reference(block) if _is_file(block) else _compact(without_blobs(block))


def _is_file(block: Mapping[str, Any]) -> bool:
    return block.get("type") == "image" or block.get("type") == "document"


def _is_blob(key: Any, value: Any) -> bool:
    is_candidate = key in {"data", "encrypted_content"} and isinstance(value, str) and len(value) >= 256
    return is_candidate and _BASE64.fullmatch(value) is not None and not _PLAIN.fullmatch(value)


def _fingerprint(data: str) -> str:
    try:
        raw = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raw = data.encode("utf-8", "replace")
    return f"{len(raw)} bytes, sha256 {hashlib.sha256(raw).hexdigest()[:12]}"


def _compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
