"""Further keys of a message, so that its copies count once.

Three kinds of copies have another key than the first:

- a typed message that a resume wrote again with a new uuid (`rewritten`);
- messages in the files of both a session and its subagent: the session's file owns the task, which is an input of the
  call that spawned the subagent, and the final answer, even if it turns up later;
- a prompt in `history.jsonl` and in a transcript (`typed`): the transcript owns it, even if it turns up later. Their
  times differ a little, so each takes the nearest one of the same text.
"""

from datetime import datetime

from anamnesis_pipeline.model import content_id
from anamnesis_pipeline.parsing.claude_logs.message_keys import CLAIM_KEY, TYPED_KEY, typed_key
from anamnesis_pipeline.parsing.claude_logs.tagged import between

_REWRITTEN = "h:"

LONGEST_NORMAL = 100_000
"""Limit of a text whose white space is normalized."""


def normal(text: str) -> str:
    """Return `text` with every run of white space as one space. A huge text is unchanged, since the list of its words
    would take ten times its memory; its copies do not differ.
    """
    return " ".join(text.split()) if len(text) <= LONGEST_NORMAL else text.strip()


def rewritten(role: str, text: str, stamp: str) -> str:
    """Return a key of a message's text and time: copies with another uuid share it."""
    return f"{_REWRITTEN}{content_id(role, normal(text), stamp)}"


def is_rewritten(key: str) -> bool:
    """Return whether a key is one of `rewritten`."""
    return key.startswith(_REWRITTEN)


def task_of_agent(session_id: str, prompt: str) -> str:
    """Return the key of a session's task for a subagent."""
    return f"p:{content_id(session_id, normal(prompt))}"


def answer_as_result(agent_id: str, text: str) -> str:
    """Return the key of a subagent's answer in the session, without the line that names the agent."""
    answer, line, _ = text.rpartition("\nagentId: ")
    return f"ft:{content_id(agent_id, normal(answer if line else text))}"


def answer_as_said(agent_id: str, text: str) -> str:
    """Return the key of a statement in the subagent's file, not that of the result: an agent may repeat itself."""
    return f"fs:{answer_as_result(agent_id, text)[3:]}"


def typed(session_id: str, cwd: str, text: str, timestamp: datetime | None) -> tuple[str, ...]:
    """Return the keys to find a typed message in the history: by its session, and by its directory."""
    if timestamp is None:
        return ()
    by_session = [_typed(CLAIM_KEY, "session", session_id, text, timestamp)] if session_id else []
    return (*by_session, _typed(CLAIM_KEY, "place", cwd, text, timestamp))


def typed_once(session_id: str, cwd: str, text: str, timestamp: datetime | None) -> str:
    """Return the key of an entry of the history: the same text typed again gets another one."""
    if timestamp is None:
        return rewritten("history", f"{session_id}\n{cwd}\n{text}", "")
    how, where = ("session", session_id) if session_id else ("place", cwd)
    return _typed(TYPED_KEY, how, where, text, timestamp)


def _typed(begin: str, how: str, where: str, text: str, timestamp: datetime) -> str:
    return typed_key(begin, content_id(how, where, normal(text)), round(timestamp.timestamp() * 1000))


def as_typed(markup: str) -> str:
    """Return a slash command or `!` command as typed by the user; other texts unchanged."""
    command = between(markup, "<command-name>", "</command-name>")
    if command is not None:
        return f"{command} {between(markup, '<command-args>', '</command-args>') or ''}".strip()
    shell = between(markup, "<bash-input>", "</bash-input>")
    return f"!{shell}" if shell is not None else markup
