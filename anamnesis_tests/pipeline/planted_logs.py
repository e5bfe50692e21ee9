"""Logs in which every kind of credential stands wherever one may stand, and a look for what is still readable."""

import json
from collections.abc import Iterator
from typing import Any

from anamnesis_tests.support.archived_logs import OTHER, Home, record
from anamnesis_tests.support.planted import credentials

PLANTED = credentials(7)


def plant(home: Home, together: int = 1) -> None:
    """Write the logs: exchanges with so many credentials each, a line that is no JSON, and a prompt of the history."""
    texts = [text for text, _ in PLANTED.values()]
    for first in range(0, len(texts), together):
        home.write(_exchange(first, "\n".join(texts[first : first + together])))
    home.write([json.dumps(record("user", "\n".join(texts), 9_000))[:-1] + "{broken"])
    pasted = {"1": {"id": 1, "type": "text", "content": "\n".join(texts)}}
    entry = {
        "display": "[Pasted text #1 +9 lines]",
        "pastedContents": pasted,
        "timestamp": 1_772_000_000_000,
        "project": "/code/shop",
        "sessionId": OTHER,
    }
    (home.base / "history.jsonl").write_text(json.dumps(entry) + "\n")


def readable(data: str) -> list[str]:
    """The kinds of which something can be read in `data`, at whatever depth of escaping."""
    plain = data + data.replace("\\n", "\n").replace('\\"', '"').replace("\\", "")
    return [kind for kind, (_, pieces) in PLANTED.items() if any(piece in plain for piece in pieces)]


def _exchange(number: int, text: str) -> Iterator[dict[str, Any]]:
    """A prompt, a reply, a tool call and its result that all hold the text, also as JSON in JSON."""
    nested = json.dumps({"config": json.dumps({"note": f"first\n{text}\nlast"})})
    name = text if len(text.split()) == 1 else "some file"
    told = {"command": f"cat <<X\n{text}\nX", "n": nested}
    tool = {"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": told}
    result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": f"out\n{text}\n{nested}"}
    yield record("user", f"please use this:\n{text}\nand go on", 4 * number)
    yield record("assistant", f"I see\n{text}\nthere", 4 * number + 1)
    yield record("assistant", "", 4 * number + 2, message={"role": "assistant", "id": f"c{number}", "content": [tool]})
    yield record(
        "user",
        "",
        4 * number + 3,
        message={"role": "user", "content": [result]},
        toolUseResult={"stdout": text, "file": {"filePath": f"/tmp/{name}", "content": text}},
    )
