"""An ingest in a process of its own, from which nothing gets out: `python -m ... <folder> <ingest | whole> [url]`.

An audit hook, which no library can go around, refuses every look-up of a name, every connection to another machine and
every start of Claude, and notes it. Prints per summarizer what was refused and what became of the summaries.
"""

import ipaddress
import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

PASSED_ON_PORT = 1
"""Stands for a local server that passes prompts on to another machine."""
ELSEWHERE: dict[str, dict[str, Any]] = {
    "anthropic": {"summarizer": "anthropic"},
    "openai": {"summarizer": "openai", "openai_url": "https://llm.example/v1", "summary_model": "m"},
    "ollama": {"summarizer": "ollama", "ollama_urls": ["http://ollama.example:11434"], "summary_model": ""},
    "ollama's cloud": {
        "summarizer": "ollama",
        "ollama_urls": [f"http://127.0.0.1:{PASSED_ON_PORT}"],
        "summary_model": "gpt-oss:20b-cloud",
    },
    "claude_cli": {"summarizer": "claude_cli", "claude_command": "claude", "summary_model": ""},
    "claude over ssh": {"summarizer": "claude_cli", "claude_host": "user@203.0.113.9"},
}
"""Summarizers that would show text to another machine."""
LOCAL_NAMES = {None, "", "localhost"}

refused: list[str] = []


def refuse_what_leaves(event: str, given: tuple[Any, ...]) -> None:
    """The audit hook."""
    match event:
        case "socket.getaddrinfo" | "socket.gethostbyname" | "socket.gethostbyname_ex":
            leaves = not is_here(given[0])
        case "socket.connect" | "socket.sendto" | "socket.sendmsg":
            host, port = given[1][:2] if isinstance(given[1], tuple) else ("", 0)  # a path: a Unix socket
            leaves = not is_here(host) or port == PASSED_ON_PORT
        case "subprocess.Popen":
            leaves = "claude" in str(given[0])
        case _:
            return
    if leaves:
        refused.append(f"{event} {given[0]!s:.80}")
        raise PermissionError(13, "nothing may leave")


def is_here(host: object) -> bool:
    """Whether an address or name is this machine."""
    if host in LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(str(host)).is_loopback
    except ValueError:
        return False


def main(folder: str, how: str, url: str = "") -> None:
    """Ingest with each summarizer in turn, or with the Ollama server at `url`."""
    from anamnesis_pipeline.cli.ingest import run_ingest
    from anamnesis_pipeline.services.log_ingest import llm_state
    from anamnesis_pipeline.services.wiring import effective_settings
    from anamnesis_pipeline.settings import load
    from anamnesis_tests.support.llm_services import LlmHome

    home = LlmHome(Path(folder), pytest.MonkeyPatch())
    home.set(llm_input_price=0.1, llm_output_price=0.5)
    sys.addaudithook(refuse_what_leaves)
    found: dict[str, Any] = {}
    here = {"ollama here": {"summarizer": "ollama", "ollama_urls": [url]}}
    for name, settings in (here if url else ELSEWHERE).items():
        home.set(**settings)
        home.store.summaries.want_summaries("nobody")
        refused.clear()
        if how == "whole":
            run_ingest(load(), lambda line: None)
        else:
            home.run(by_hand=True)
        problem = llm_state(home.store, effective_settings(home.store), datetime.now(UTC))["problem"]
        counts = home.store.summaries.summary_counts()
        found[name] = {"refused": list(refused), "counts": counts, "problem": problem}
    home.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
