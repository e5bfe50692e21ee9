"""Jupyter notebooks."""

import json
from collections.abc import Iterator
from typing import Any

from anamnesis_pipeline.errors import DocumentUnreadable
from anamnesis_pipeline.parsing.documents.charset import decoded
from anamnesis_pipeline.parsing.documents.plain import fenced, shortened, tidy

MOST_OUTPUT_CHARS = 20_000


def notebook_text(data: bytes) -> str:
    """Return the cells of a notebook in order: text unchanged, code in blocks, and 20,000 characters of each output."""
    try:
        notebook = json.loads(decoded(data))
        cells = notebook["cells"] if "cells" in notebook else notebook["worksheets"][0]["cells"]
        language = notebook.get("metadata", {}).get("kernelspec", {}).get("language", "python")
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError) as exc:
        raise DocumentUnreadable(f"it is no notebook ({type(exc).__name__})") from exc
    found = [block for cell in cells if isinstance(cell, dict) for block in _blocks(cell, str(language))]
    return tidy("\n\n".join(found))


def _blocks(cell: dict[str, Any], language: str) -> Iterator[str]:
    source = _joined(cell.get("source", cell.get("input", "")))
    if not source.strip():
        return
    if cell.get("cell_type") != "code":
        yield source
        return
    yield fenced(source, language)
    for output in cell.get("outputs") or ():
        if isinstance(output, dict) and (text := _shown(output).strip()):
            yield fenced(shortened(text, MOST_OUTPUT_CHARS))


def _shown(output: dict[str, Any]) -> str:
    if output.get("output_type") == "error":
        return f"{output.get('ename', '')}: {output.get('evalue', '')}"
    data = output.get("data")
    return _joined(data.get("text/plain", "") if isinstance(data, dict) else output.get("text", ""))


def _joined(source: object) -> str:
    return "".join(str(line) for line in source) if isinstance(source, list) else str(source)
