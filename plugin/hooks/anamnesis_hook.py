#!/usr/bin/env python3
"""What Claude Code runs at the hooks of a session: `anamnesis_hook.py start|prompt|action|nudge [URL]`, event on stdin.

`start`, `prompt` and `action` (before an edit or a command) ask the memory for context and print it; none decides on
the call. `nudge` says that a transcript has grown. Whatever happens, this ends within `DEADLINE_S` with status 0, and
prints nothing but context: no memory is worth a session.

Python 3.8 or newer, standard library only, on every system. Settings, from the environment, the plugin's before ours:

    CLAUDE_PLUGIN_OPTION_API_ENDPOINT, ANAMNESIS_URL            address of the memory; else URL, else this port here:
    ANAMNESIS_PORT
    CLAUDE_PLUGIN_OPTION_API_TOKEN, ANAMNESIS_API_TOKEN         its token, if it wants one
    CLAUDE_PLUGIN_OPTION_START_TOKENS, ANAMNESIS_START_TOKENS   most tokens at the start of a session; 0: none
    CLAUDE_PLUGIN_OPTION_PROMPT_TOKENS, ANAMNESIS_PROMPT_TOKENS most tokens at a prompt; 0: none
    ANAMNESIS_HOOKS                                             `off`: do nothing

A file `.claude/anamnesis-off` in the project turns them off there.
"""

import json
import os
import re
import sys
import threading

CONNECT_S = 0.3
DEADLINE_S = 1.0
"""From the first line of this script; the interpreter's own start comes on top."""
START_TOKENS, PROMPT_TOKENS, MAX_TOKENS = 800, 400, 1500
ACTION_TOKENS, MAX_CHANGE = 150, 4000
MAX_STDIN, MAX_REPLY, MAX_PROMPT = 4000000, 200000, 20000
MAX_CONTEXT = 9900
"""Characters; Claude Code moves what is beyond 10,000 into a file."""
BEGINS, ENDS = '<anamnesis-memory id="5f1c9e0b7a42">', "</anamnesis-memory>"
OFF = ("off", "0", "false", "no")
OFF_FILE = os.path.join(".claude", "anamnesis-off")
DELIVERED = re.compile(
    r"\s*(?:Another Claude session sent a message:\s*)?"
    r"<(task-notification|agent-notification|teammate-message|agent-message|cross-session-message|channel"
    r"|system-reminder|user-prompt-submit-hook|ide_\w+|user-memory-input|command-\w+|local-command-\w+|bash-\w+)"
    r"(?:\s([^<>]*))?>(?:(.*?)</\1>|(?=\r?\n).*)",
    re.DOTALL,
)
"""A block of what the client, a tool or another agent says, at the start of a prompt: its tag, attributes and text."""
BANNER = re.compile(
    r"\s*\[[^\]\n]*\b(?:SYSTEM|NOT USER INPUT|NOTIFICATION|AUTOMATED|SCHEDULED)\b[^\]\n]*\][ \t]*(?:[\r\n]|$)"
)
"""First line, which says that no person wrote what follows."""
INJECTED = (
    "[Request interrupted by user",
    "Stop hook feedback:",
    "Caveat: The messages below were generated",
    "This session is being continued from a previous conversation",
)
"""How prompts begin that the client makes without any mark."""
TRAILERS = re.compile(
    r"(?:\s*(?:Full transcript available at|Read the output file to retrieve the result|Output file):.*)*\s*"
)
"""What the client adds behind a block."""


def main(action, environ, stdin):
    """The text to print; empty: nothing."""
    if environ.get("ANAMNESIS_HOOKS", "").strip().lower() in OFF:
        return ""
    event = json.loads(stdin.read(MAX_STDIN).decode("utf-8", "replace"))
    if not isinstance(event, dict) or _is_off(event, environ):
        return ""
    if action == "nudge":
        _nudge(event, environ)
        return ""
    return _context(action, event, environ)


def _context(action, event, environ):
    wanted = {
        "start": lambda: _tokens(environ, "START_TOKENS", START_TOKENS),
        "prompt": lambda: _tokens(environ, "PROMPT_TOKENS", PROMPT_TOKENS),
        "action": lambda: ACTION_TOKENS,
    }[action]()
    question = _action(event) if action == "action" else _question(action, event)
    if wanted <= 0 or question is None or event.get("agent_id"):
        return ""
    body = dict(question, max_tokens=wanted, **_named(event, ("session_id", 200), ("cwd", 4096)))
    status, reply = _post(environ, "/api/context/action" if action == "action" else "/api/context", body)
    if status != 200:
        return ""
    answer = json.loads(reply.decode("utf-8"))
    text = answer.get("text") if isinstance(answer, dict) else None
    if not isinstance(text, str) or not _is_ours(text.strip()):
        return ""
    name = {"start": "SessionStart", "prompt": "UserPromptSubmit", "action": "PreToolUse"}[action]
    return json.dumps({"hookSpecificOutput": {"hookEventName": name, "additionalContext": text.strip()}})


def _question(action, event):
    """What tells a start from a prompt; None: there is nothing to ask."""
    if action == "start":
        source = event.get("source")
        return {"source": source} if source in ("startup", "resume", "clear", "compact", "fork") else {}
    typed = _typed(event)
    if not typed or typed.startswith("/"):
        return None
    return {"query": typed.replace("\x00", " ")[:MAX_PROMPT]}


def _action(event):
    """What is about to be done; None: nothing that the memory knows about."""
    given = event.get("tool_input")
    if not isinstance(given, dict):
        return None
    if event.get("tool_name") == "Bash":
        command = given.get("command")
        return {"command": _plain(command)} if isinstance(command, str) and command.strip() else None
    path = given.get("file_path") or given.get("notebook_path")
    if not isinstance(path, str) or not path.strip() or len(path) > 4096:
        return None
    edits = given.get("edits")
    edits = [given] + [each for each in (edits if isinstance(edits, list) else []) if isinstance(each, dict)]
    before = [each["old_string"] for each in edits if isinstance(each.get("old_string"), str)]
    after = [
        each[name]
        for each in edits
        for name in ("new_string", "content", "new_source")
        if isinstance(each.get(name), str)
    ]
    return {"path": path, "before": _plain("\n".join(before)), "after": _plain("\n".join(after))}


def _plain(text):
    return text.replace("\x00", " ")[:MAX_CHANGE]


def _typed(event):
    """What a person typed, here or into a channel; empty where it is a notification, a delivery or a banner."""
    prompt, origin = event.get("prompt"), event.get("origin")
    by_machine = event.get("promptSource") == "system" or (isinstance(origin, dict) and origin.get("kind") != "human")
    if not isinstance(prompt, str) or by_machine or BANNER.match(prompt) or prompt.lstrip().startswith(INJECTED):
        return ""
    said, rest, block = [], prompt, DELIVERED.match(prompt)
    while block:
        tag, attributes, text = block.groups("")
        if tag == "channel" and re.search(r"\buser=", attributes):
            said.append(text.strip())
        rest = rest[block.end() :]
        block = DELIVERED.match(rest)
    if rest != prompt and TRAILERS.fullmatch(rest):
        rest = ""
    return "\n".join(filter(None, [*said, rest.strip()]))


def _is_ours(text):
    """Whether it is one whole block of the memory's, and not what some other program on the port said."""
    ends_once = text.endswith(ENDS) and text.count(ENDS) == 1
    return text.startswith(BEGINS) and ends_once and len(text) <= MAX_CONTEXT


def _nudge(event, environ):
    named = _named(event, ("transcript_path", 4096))
    if named:
        _post(environ, "/api/jsonl/nudge", named)


def _named(event, *fields):
    """Those fields that hold a text of a sound length."""
    return {
        name: event[name]
        for name, most in fields
        if isinstance(event.get(name), str) and event[name].strip() and len(event[name]) <= most
    }


def _is_off(event, environ):
    folders = (event.get("cwd"), environ.get("CLAUDE_PROJECT_DIR"))
    return any(isinstance(folder, str) and os.path.exists(os.path.join(folder, OFF_FILE)) for folder in folders)


def _option(environ, name):
    """A setting of the plugin, else of the environment; empty where neither says anything."""
    given = environ.get("CLAUDE_PLUGIN_OPTION_" + name, "") or environ.get("ANAMNESIS_" + name, "")
    return "" if given.startswith("${") else given.strip()


def _tokens(environ, name, default):
    try:
        return min(int(float(_option(environ, name))), MAX_TOKENS)
    except (ValueError, OverflowError):
        return default


def _endpoint(environ):
    given = _option(environ, "API_ENDPOINT") or environ.get("ANAMNESIS_URL", "").strip() or "".join(sys.argv[2:3])
    return given or "http://127.0.0.1:" + (environ.get("ANAMNESIS_PORT", "").strip() or "3010")


def _post(environ, path, body):
    """Status and body of one call. No proxy is asked, and no redirect followed."""
    import http.client  # here, so that a session that is off pays nothing for it
    from urllib.parse import urlsplit

    address = urlsplit(_endpoint(environ))
    kinds = {"http": http.client.HTTPConnection, "https": http.client.HTTPSConnection}
    connection = kinds[address.scheme](address.hostname, address.port, timeout=CONNECT_S)
    try:
        connection.connect()
        connection.sock.settimeout(DEADLINE_S)
        headers = {"Content-Type": "application/json", "Connection": "close"}
        token = _option(environ, "API_TOKEN")
        if token:
            headers["Authorization"] = "Bearer " + token
        connection.request("POST", address.path.rstrip("/") + path, json.dumps(body).encode("ascii"), headers)
        reply = connection.getresponse()
        content = reply.read(MAX_REPLY + 1)
        return (reply.status, content) if len(content) <= MAX_REPLY else (0, b"")
    finally:
        connection.close()


def _run(found):
    try:
        action = sys.argv[1] if len(sys.argv) > 1 else ""
        if action in ("start", "prompt", "action", "nudge"):
            found.append(main(action, os.environ, sys.stdin.buffer))
    except BaseException:  # noqa: S110 - a hook never harms a session
        pass


if __name__ == "__main__":
    _found = []
    # A thread, since a server may hang or drip in ways that no time-out of a socket bounds.
    try:
        _worker = threading.Thread(target=_run, args=(_found,))
        _worker.daemon = True
        _worker.start()
        _worker.join(DEADLINE_S)
        if _found and _found[0]:
            sys.stdout.write(_found[0])
            sys.stdout.flush()
    except BaseException:  # noqa: S110 - no thread can start, the reader is gone, an interrupt
        pass
    os._exit(0)  # also while the thread still waits
