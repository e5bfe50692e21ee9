"""Convert one record to messages. The format is internal to Claude Code: every field is optional, nothing is fatal, and
unknown content is counted.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, NamedTuple

from anamnesis_pipeline.model import Message, SegmentKind, content_id, said_at
from anamnesis_pipeline.parsing.claude_logs import identity
from anamnesis_pipeline.parsing.claude_logs.blocks import (
    is_milestone,
    reference,
    result_text,
    saved_to,
    tool_input_text,
)
from anamnesis_pipeline.parsing.claude_logs.log_lines import Record, read_records
from anamnesis_pipeline.parsing.claude_logs.message_keys import borrowed_key, result_key
from anamnesis_pipeline.parsing.claude_logs.own_calls import asks_memory, is_question
from anamnesis_pipeline.parsing.claude_logs.tagged import between, without_at_ends
from anamnesis_pipeline.parsing.claude_logs.user_text import (
    INJECTED_TAGS,
    Said,
    is_meta,
    kinds_of,
    marked_kind,
    own_kind,
)

_AGENT_TOOLS = frozenset({"Agent", "Task"})
_TYPED = frozenset({SegmentKind.PROMPT, SegmentKind.STEERING, SegmentKind.COMMAND})
_SYSTEM_KINDS = {
    "local_command": SegmentKind.COMMAND,
    "away_summary": SegmentKind.RECAP,
    "scheduled_task_fire": SegmentKind.NOTIFICATION,
}
"""Subtypes of system records with text."""
MAX_TYPE_CHARS = 60
_RECAP_HINT = " (disable recaps in /config)"
_MESSAGE_TYPES = frozenset({"user", "assistant", "attachment", "system"})
_SKIPPED_TYPES = frozenset(
    """
    progress file-history-snapshot file-history-delta queue-operation ai-title custom-title summary agent-name
    agent-setting agent-color tag last-prompt mode permission-mode pr-link worktree-state cost-state atis-latch
    continued-in relocated bridge-session fork-context-ref observer-ref content-replacement history-suppression
    rewind-pointer ended-by-model isolation-latch memory-mode dev-mods frame-link attribution-snapshot task-summary
    artifact-autoreact-ledger artifact-comment-monitor marble-origami-commit marble-origami-snapshot
    marble-origami-reset speculation-accept agent_metadata launched started result failed workflow-start
    workflow-progress workflow-complete workflow-cancelled workflow-error rate_limit_event api-request
    api-request-blob api-request-resumed api-request-shape data-flow-incomplete data-flow-records derived-from
    resume-head-vouch session-owner tools-used
""".split()
)
"""Records without conversation, up to version 2.1.332 of Claude Code. An `api-request-blob` repeats a message."""
_SKIPPED_SUBTYPES = frozenset(
    """
    agents_killed api_error api_metrics api_retry bridge_status compact_boundary elicitation_complete file_snapshot
    files_persisted hook_progress hook_response hook_started informational init local_command_output memory_saved
    microcompact_boundary model_fallback model_refusal_fallback permission_denied permission_retry post_turn_summary
    session_state_changed snip_boundary status stop_hook_summary task_notification task_progress task_started
    task_updated thinking turn_duration
""".split()
)
"""System records without conversation; those of 2025 have no subtype."""
_SKIPPED_ATTACHMENTS = frozenset(
    """
    agent_listing_delta agent_mention already_read_file async_agent_status async_hook_response
    async_hook_response_batch auto_mode auto_mode_exit background_remote_session_status background_shell_status
    bagel_console bash_output_audience_note budget_usd collab_notification command_permissions
    compact_file_reference compaction_reminder companion_intro context_efficiency context_sections
    coordinator_context credential_org critical_system_reminder current_session_memory date date_change
    deferred_tools_delta deferred_tools_record delegate_mode delegate_mode_exit diagnostics directory dynamic_skill
    edited_image_file edited_text_file environment file goal_status hook_additional_context hook_blocking_error
    hook_cancelled hook_error_during_execution hook_non_blocking_error hook_permission_decision
    hook_stopped_continuation hook_success hook_system_message image instructions invoked_skills language
    lsp_diagnostics max_turns_reached mcp_instructions_delta mcp_resource memory model nested_memory new_directory
    new_file opened_file_in_ide output_style output_style_instructions output_token_usage pdf_reference
    plan_file_reference plan_mode plan_mode_exit plan_mode_reentry prompt_render_point prompt_snapshot
    relevant_memories remote_session_change selected_lines_in_diff selected_lines_in_ide session_context
    session_memory silent_turn_reminder skill_discovery skill_listing structured_output task_progress task_reminder
    task_status team_context teammate_mailbox teammate_shutdown_batch todo todo_reminder token_usage
    total_tokens_reminder ultramemory ultrathink_effort unified_tasks unknown_command_fallback verify_plan_reminder
""".split()
)
"""Attachments of Claude Code to a prompt without an author's text."""
_SKIPPED_BLOCKS = frozenset(
    """
    redacted_thinking connector_text compaction container_upload fallback search_result tool_reference thinking image
    document audio video resource resource_link
""".split()
)
"""Blocks that are left out if they hold no text, or where none is expected."""
KNOWN_TYPES = _MESSAGE_TYPES.union(
    _SKIPPED_TYPES,
    (f"system:{name}" for name in ("", *_SKIPPED_SUBTYPES)),
    (f"attachment:{name}" for name in ("", *_SKIPPED_ATTACHMENTS)),
    (f"block:{name}" for name in ("", *_SKIPPED_BLOCKS)),
)
"""Types of records; the prefixes `system:`, `attachment:` and `block:` mark types of their content."""
UNKNOWN = "unknown:"
"""Prefix of the reason for skipping an unknown type; the type follows."""


@dataclass(frozen=True, slots=True)
class LoggedMessage:
    """A message with its place from the record.

    `tool_use_id` links a tool's input to its result, and a `!` command to its output; `tool`, `milestone` and
    `asks_memory` are set on the first of these. `claims` are keys that this message also represents, without being a
    copy because of them; one whose `seen_as` is claimed already is a copy. `parent` is the uuid of the previous record.
    On results only, `spawned` is the ID of the subagent that the call started, and `moved_to` the path, on the machine
    that wrote it, of a file with the whole text of a preview. `borrowed` ones are marked as another session's.
    """

    message: Message
    line: int
    session_id: str
    cwd: str
    agent_id: str
    sidechain: bool
    tool_use_id: str = ""
    tool: str = ""
    milestone: bool = False
    claims: tuple[str, ...] = ()
    seen_as: tuple[str, ...] = ()
    parent: str = ""
    spawned: str = ""
    borrowed: bool = False
    moved_to: str = ""
    asks_memory: bool = False
    entrypoint: str = ""
    """The program that started Claude Code, from its records: `cli`, `sdk-ts`, ..."""
    branch: str = ""
    """The git branch; empty where there is none."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return every key that identifies a copy of the message."""
        return (self.message.key, *self.message.aliases, *self.seen_as)

    @property
    def lent_as(self) -> tuple[str, ...]:
        """Return the keys of the message while only marked copies were read."""
        return () if self.borrowed else tuple(map(borrowed_key, (self.message.key, *self.message.aliases)))


def stands_for(logged: LoggedMessage) -> tuple[str, ...]:
    """Return the keys under which the message may have been known, and deleted, before it was read itself."""
    return (*logged.claims, *logged.lent_as)


# --- record -> messages ----------------------------------------------------------------------------------


def read_messages_of(record: Record, line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    """Return the messages in one record; skipped content is counted in `skipped` by the reason."""
    kind = _string(record, "type")
    if kind in _SKIPPED_TYPES:
        skipped[kind] += 1
        return []
    body = record.get("message", record)
    if kind not in _MESSAGE_TYPES:
        kind = _string(body, "role") if isinstance(body, dict) else ""
    if kind == "user":
        return _user(record, _content(body), line, skipped)
    if kind == "assistant":
        return _assistant(record, body, line, skipped)
    if kind == "attachment":
        return _attachment(record, line, skipped)
    if kind == "system":
        return _system(record, line, skipped)
    _leave_out(_string(record, "type"), skipped)
    return []


def _leave_out(name: str, skipped: Counter[str]) -> None:
    """Count a record, or content of one, by its type, as in `KNOWN_TYPES`."""
    name = name[:MAX_TYPE_CHARS]
    skipped[name if name in KNOWN_TYPES else UNKNOWN + name] += 1


def boundary_of(record: Record) -> tuple[str, str] | None:
    """Return (uuid of a compaction's boundary, uuid of the last record before it); None for any other record."""
    if record.get("subtype") != "compact_boundary":
        return None
    return _string(record, "uuid"), _string(record, "logicalParentUuid")


def continuation_of(record: Record) -> tuple[str, str] | None:
    """Return (ID of a session, ID of its continuation); None for any other record."""
    if record.get("type") != "continued-in":
        return None
    session_id, later = _string(record, "sessionId"), _string(record, "continuedInSessionId")
    return (session_id, later) if session_id and later and session_id != later else None


def fired_by(record: Record) -> str:
    """Return the uuid of a record of a fired schedule; empty for any other record."""
    return _string(record, "uuid") if record.get("subtype") == "scheduled_task_fire" else ""


def is_borrowed(record: Record) -> bool:
    """Return whether the record is marked as copied from another session, or its session as moved."""
    return "forkedFrom" in record or record.get("sessionKind") == "bg"


class Beginning(NamedTuple):
    """The beginning of a log; logs own shared messages in this order."""

    is_fork: bool = False
    at: str = ""


def beginning(lines: Iterable[str]) -> Beginning:
    """Return the beginning from the first record with a plausible time; a fork or a moved session is marked as such."""
    for line in lines:
        for record in read_records(line)[0]:
            if timestamp_of(record) is not None:
                return Beginning(is_borrowed(record), _string(record, "timestamp"))
    return Beginning()


def timestamp_of(record: Record) -> datetime | None:
    """Return the record's time in UTC, if it is readable and plausible."""
    text = record.get("timestamp")
    if not isinstance(text, str):
        return None
    try:
        return said_at(datetime.fromisoformat(text))
    except ValueError:
        return None


class _Emitter:
    """Collects one record's messages and numbers those that only the record's uuid identifies."""

    def __init__(self, record: Record, role: str, line: int) -> None:
        self.messages: list[LoggedMessage] = []
        self.session_id, self.agent_id = _string(record, "sessionId"), _string(record, "agentId")
        self._line = line
        self._role = role
        self._stamp = _string(record, "timestamp")
        self._cwd, self._sidechain = _string(record, "cwd"), record.get("isSidechain") is True
        self._uuid, self._timestamp = _string(record, "uuid"), timestamp_of(record)
        self._parent, self._entrypoint = _string(record, "parentUuid"), _string(record, "entrypoint")
        self._branch = _string(record, "gitBranch")
        self._is_borrowed = is_borrowed(record)
        self._numbered = 0

    def add(
        self,
        kind: SegmentKind,
        text: str,
        key: str = "",
        tool: tuple[str, str, bool] = ("", "", False),
        claims: tuple[str, ...] = (),
        seen_as: tuple[str, ...] = (),
        aliases: tuple[str, ...] = (),
        sender: str = "",
    ) -> None:
        """Add unless `text` is blank. `tool`: (ID of the call, tool name, whether it ends a step)."""
        if not text or text.isspace():
            return
        key, aliases = (key, aliases) if key else self._record_keys(text)
        if self._is_borrowed:
            seen_as = (key, *aliases, *seen_as)
            key, aliases = borrowed_key(key), tuple(map(borrowed_key, aliases))
        message = Message(key, self._uuid, kind, text, self._timestamp, aliases, sender)
        self.messages.append(
            LoggedMessage(
                message,
                self._line,
                self.session_id,
                self._cwd,
                self.agent_id,
                self._sidechain,
                *tool,
                claims,
                seen_as,
                self._parent,
                borrowed=self._is_borrowed,
                entrypoint=self._entrypoint,
                branch=self._branch,
            )
        )

    def add_typed(self, kind: SegmentKind, text: str, typed: str, sender: str = "") -> None:
        """Add the text of a user record; `typed` is the part of it that was typed. The body of a skill, which each of
        its uses repeats, is one message everywhere.
        """
        if kind is SegmentKind.SKILL:
            self.add(kind, text, f"skill:{content_id('skill', text)}")
        elif kind is SegmentKind.AGENT_PROMPT:
            task = (identity.task_of_agent(self.session_id, typed),)
            self.add(kind, text, claims=task, seen_as=task)
        elif kind in _TYPED and typed:
            typed = identity.as_typed(typed) if kind is SegmentKind.COMMAND else typed
            self.add(kind, text, claims=identity.typed(self.session_id, self._cwd, typed, self._timestamp))
        else:
            self.add(kind, text, sender=sender)

    def result_keys(self, call: str, text: str) -> tuple[str, tuple[str, ...]]:
        """Return key and aliases of a tool's result; a record written again with another text is the same one."""
        return result_key(call, text), (f"u:{self._uuid}:r:{call}",) if self._uuid else ()

    def block_keys(self) -> tuple[str, ...]:
        """Return aliases of a reply's next block: its key changes with the text, which other rules mask differently."""
        return (f"u:{self._uuid}:b:{len(self.messages)}",) if self._uuid else ()

    def _record_keys(self, text: str) -> tuple[str, tuple[str, ...]]:
        number, self._numbered = self._numbered, self._numbered + 1
        suffix = f":{number}" if number else ""
        rewritten = f"{identity.rewritten(self._role, text, self._stamp)}{suffix}"
        if not self._uuid:
            return rewritten, ()
        return f"u:{self._uuid}{suffix}", (rewritten,) if self._stamp else ()


def _user(record: Record, blocks: Sequence[Any], line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    """Return each tool result separately, and texts and images that were typed together as one message."""
    emitter = _Emitter(record, "user", line)
    pieces: list[Said] = []
    typed: list[Said] = []
    has_result = False
    result = record.get("toolUseResult")
    details = result if isinstance(result, dict) else {}
    is_only_one = sum(_type(block).endswith("tool_result") for block in blocks) == 1
    moved_to = _string(details, "persistedOutputPath") if is_only_one else ""
    for block in blocks:
        kind = _type(block)
        if kind.endswith("tool_result"):
            has_result = True
            _add_result(emitter, block, skipped, _string(details, "agentId"), moved_to)
        elif kind == "text":
            found = kinds_of(record, _string(block, "text"), skipped)
            typed += found
            pieces += found
        elif kind in {"image", "document"}:
            if is_meta(record) and marked_kind(record) is None:
                skipped["user:meta"] += 1
                continue
            of_text = pieces[-1] if pieces else Said(own_kind(record), "")
            said = Said(SegmentKind.NOTIFICATION, "") if has_result else of_text
            pieces.append(said._replace(text=reference(block)))
        else:
            _leave_out(f"block:{kind}", skipped)
    for who in dict.fromkeys((said.kind, said.sender) for said in pieces):
        emitter.add_typed(who[0], _joined(pieces, who), _joined(typed, who), who[1])
    return [_with_command(logged) for logged in emitter.messages]


def _with_command(logged: LoggedMessage) -> LoggedMessage:
    """Link a `!` command to its output in the next record, and set whether it asks the memory."""
    text = logged.message.text
    if logged.message.kind is not SegmentKind.COMMAND:
        return logged
    if (command := between(text, "<bash-input>", "</bash-input>")) is not None:
        return replace(logged, tool_use_id=logged.message.uuid, asks_memory=is_question(command))
    return replace(logged, tool_use_id=logged.parent) if text.lstrip().startswith("<bash-std") else logged


def _joined(pieces: Sequence[Said], who: tuple[SegmentKind, str]) -> str:
    return "\n".join(said.text for said in pieces if (said.kind, said.sender) == who)


def _add_result(
    emitter: _Emitter, block: Record, skipped: Counter[str], agent_id: str = "", moved_to: str = ""
) -> None:
    """Add a tool's output, without the blocks that the client added before or behind each piece of it.

    :param agent_id: the subagent whose answer it is.
    :param moved_to: path of the file with the whole text, unless the text names it.
    """
    kind = SegmentKind.TOOL_ERROR if block.get("is_error") is True else SegmentKind.TOOL_RESULT
    call, content = _string(block, "tool_use_id"), block.get("content")
    texts = [result_text([piece]) for piece in content] if isinstance(content, list) else [result_text(content)]
    cut = [without_at_ends(text, INJECTED_TAGS) for text in texts]
    skipped["user:injected"] += sum(count for _, count in cut)
    text = "\n".join(text for text, _ in cut if text)
    claims = (identity.answer_as_result(agent_id, text), identity.answer_as_said(agent_id, text)) if agent_id else ()
    key, aliases = emitter.result_keys(call, text) if call else ("", ())
    before = len(emitter.messages)
    emitter.add(kind, text, key, (call, "", False), claims, aliases=aliases)
    spawned, moved_to = agent_id if call else "", saved_to(text) or moved_to
    if (spawned or moved_to) and len(emitter.messages) > before:
        emitter.messages[-1] = replace(emitter.messages[-1], spawned=spawned, moved_to=moved_to)


def _assistant(record: Record, body: Any, line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    reply = body if isinstance(body, dict) else {}
    if record.get("isApiErrorMessage") is True or reply.get("model") == "<synthetic>":
        skipped["assistant:synthetic"] += 1
        return []
    emitter = _Emitter(record, "assistant", line)
    for block in _content(body):
        _add_block(emitter, _string(reply, "id"), block, skipped)
    return emitter.messages


def _add_block(emitter: _Emitter, message_id: str, block: Any, skipped: Counter[str]) -> None:
    kind = _type(block)
    aliases = emitter.block_keys() if message_id else ()
    if kind in {"text", "thinking"}:
        text = _string(block, kind)
        key = f"a:{message_id}:{content_id(kind, text)}" if message_id else ""
        if kind == "thinking":
            emitter.add(SegmentKind.THINKING, text, key, aliases=aliases)
        else:
            agent_id = emitter.agent_id
            said = (identity.answer_as_said(agent_id, text),) if agent_id else ()
            seen_as = (identity.answer_as_result(agent_id, text),) if agent_id else ()
            emitter.add(SegmentKind.STATEMENT, text, key, claims=said, seen_as=seen_as, aliases=aliases)
        skipped["block:empty"] += not text or text.isspace()
    elif kind.endswith("tool_use"):
        name, value, call = _string(block, "name") or "tool", block.get("input"), _string(block, "id")
        text = tool_input_text(name, value)
        key = f"a:{message_id}:{content_id(kind, call or text)}" if message_id else ""
        task = _string(value, "prompt") if name in _AGENT_TOOLS and isinstance(value, dict) else ""
        claims = (identity.task_of_agent(emitter.session_id, task),) if task else ()
        emitter.add(SegmentKind.TOOL_INPUT, text, key, (call, name, is_milestone(name, value)), claims, aliases=aliases)
        if asks_memory(name, value):
            emitter.messages[-1] = replace(emitter.messages[-1], asks_memory=True)
    elif kind.endswith("tool_result"):
        _add_result(emitter, block, skipped)
    else:
        _leave_out(f"block:{kind}", skipped)


def _attachment(record: Record, line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    attachment = record.get("attachment")
    payload = attachment if isinstance(attachment, dict) else {}
    if payload.get("type") != "queued_command":
        _leave_out(f"attachment:{_type(payload)}", skipped)
        return []
    marks = {field: payload[field] for field in ("origin", "isMeta", "promptSource") if field in payload}
    if payload.get("commandMode") == "task-notification":
        marks.setdefault("origin", {"kind": "task-notification"})
    steering = {SegmentKind.PROMPT: SegmentKind.STEERING, SegmentKind.AGENT_PROMPT: SegmentKind.STEERING}
    emitter = _Emitter(record, "attachment", line)
    text = result_text(payload.get("prompt"))
    for kind, typed, sender in kinds_of({**record, **marks}, text, skipped):
        emitter.add_typed(steering.get(kind, kind), typed, typed, sender)
    return emitter.messages


def _system(record: Record, line: int, skipped: Counter[str]) -> list[LoggedMessage]:
    kind = _SYSTEM_KINDS.get(_string(record, "subtype"))
    if kind is None:
        _leave_out(f"system:{_string(record, 'subtype')}", skipped)
        return []
    emitter = _Emitter(record, "system", line)
    emitter.add(kind, _string(record, "content").removesuffix(_RECAP_HINT))
    return emitter.messages


def _content(body: Any) -> Sequence[Any]:
    """Return the content blocks of a message; a bare string counts as one text block."""
    content = body.get("content") if isinstance(body, dict) else body
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _type(block: Any) -> str:
    return _string(block, "type") if isinstance(block, dict) else ""


def _string(record: Record, field: str) -> str:
    value = record.get(field)
    return value if isinstance(value, str) else ""
