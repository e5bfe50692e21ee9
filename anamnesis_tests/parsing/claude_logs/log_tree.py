"""Log folders as Claude Code, its users and its sweeper leave them: what stands in their files, and on disk."""

import json
import os
from dataclasses import dataclass, replace
from typing import Any

from anamnesis_tests.support.ingested import Ingested
from anamnesis_tests.support.log_lines import Log, stamp

FOLDERS = ("-home-dev-shop", "-home-dev-tools")
LONG = "and so on, line after line;\n" * 250
"""More than a part holds."""

Place = tuple[str, str]
"""A project folder, and the path of a file in it."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record that says one word, behind the rest of a torn one where it was glued to that.

    `asked_in` is set on a subagent's task: the session that asks, whatever session a copy is of.
    """

    record: dict[str, Any]
    word: str
    torn: str = ""
    asked_in: str = ""

    @property
    def text(self) -> str:
        return self.torn + json.dumps(self.record, ensure_ascii=False)

    @property
    def is_borrowed(self) -> bool:
        return "forkedFrom" in self.record or "sessionKind" in self.record

    def copied(self, how: str, session: str, number: int) -> "list[Line]":
        """As a copy in the file of `session` has it; a branch writes it twice."""
        record = self.record | {"sessionId": session}
        mark = {"forkedFrom": {"sessionId": self.record["sessionId"], "messageUuid": self.record["uuid"]}}
        new_uuid = {"uuid": f"{self.record['uuid']}-again-{number}"}
        match how:
            case "resume":
                records = [record]
            case "fork":
                records = [record | mark]
            case "fork with new uuids":
                records = [record | mark | new_uuid]
            case "branch":
                records = [record, record | mark]
            case "background":
                records = [record | {"sessionKind": "bg"}]
            case "upgrade":
                records = [self.record | {"version": "2.1.299", "slug": "otter"}]
            case _:
                records = [self.record | new_uuid]
        return [Line(found, self.word, asked_in=self.asked_in) for found in records]


def session_name(number: int) -> str:
    return f"00000000-0000-0000-0000-{number:012d}"


def session_place(number: int) -> Place:
    """Where a session's file is when it begins."""
    return FOLDERS[number % len(FOLDERS)], f"{session_name(number)}.jsonl"


def is_agents(place: Place) -> bool:
    return place[1].rpartition("/")[2].startswith("agent-")


class Writer:
    """Makes records, each later than the one before, and with a word of its own."""

    def __init__(self) -> None:
        self.made = 0

    def next(self) -> int:
        self.made += 1
        return self.made

    def line(self, kind: str, session: str, agent: str = "", word: str = "") -> Line:
        """Of a kind (`user`, `say`, `tool`, `long`), in a session's file or that of its subagent."""
        number = self.next()
        common: dict[str, Any] = {"isSidechain": True, "agentId": agent} if agent else {}
        log, word = Log(session=session, **common), word or f"word{number}."
        fields: dict[str, Any] = {"uuid": f"uuid-{number}", "timestamp": stamp(number)}
        if kind == "user":
            record = log.user(f"{word} größer", **fields)
        elif kind == "say":
            record = log.assistant({"type": "text", "text": word}, message_id=f"m{number}", **fields)
        else:
            text = f"{word} {LONG}" if kind == "long" else word
            record = log.user([{"type": "tool_result", "tool_use_id": f"toolu_{number}", "content": text}], **fields)
        return Line(record, word)

    def spawning(self, session: str, agent: str) -> "tuple[list[Line], list[Line]]":
        """What stands in a session's file about a subagent, and in the subagent's own: task and answer in both."""
        number = self.next()
        task = replace(self.line("user", session, agent), asked_in=session)
        work = [self.line(kind, session, agent) for kind in ("say", "tool")]
        answer = self.line("say", session, agent)
        log, call = Log(session=session), f"toolu_{number}"
        prompt = task.record["message"]["content"]
        asked = {"type": "tool_use", "id": call, "name": "Agent", "input": {"prompt": prompt}}
        log.assistant(asked, message_id=f"m{number}", uuid=f"uuid-{number}", timestamp=stamp(number))
        number = self.next()
        told = {"type": "tool_result", "tool_use_id": call, "content": f"{answer.word}\nagentId: {agent}"}
        log.user([told], uuid=f"uuid-{number}", timestamp=stamp(number), toolUseResult={"agentId": agent})
        asking, telling = map(json.loads, log.lines)
        return [replace(task, record=asking), replace(answer, record=telling)], [task, *work, answer]


class LogTree:
    """The files, on disk as they are here."""

    def __init__(self, home: Ingested) -> None:
        self.home = home
        self.files: dict[Place, list[Line]] = {}
        self._torn: dict[Place, tuple[Line, int]] = {}
        """The last line of a file, of which so many characters were written."""

    def at(self, number: int) -> Place:
        """One of the files."""
        return sorted(self.files)[number % len(self.files)]

    def rewrite(self, place: Place, lines: list[Line]) -> None:
        """In place; a torn tail goes."""
        self.files[place] = lines
        self._torn.pop(place, None)
        self.home.write([line.text for line in lines], place[1], place[0])

    def append(self, place: Place, lines: list[Line]) -> None:
        """Behind what there is; a torn line is completed before."""
        rest = ""
        if place in self._torn:
            line, cut = self._torn.pop(place)
            self.files[place].append(line)
            rest = f"{line.text[cut:]}\n"
        self.files[place] = [*self.files.get(place, []), *lines]
        self.home.append((rest + "".join(f"{line.text}\n" for line in lines)).encode(), place[1], place[0])

    def tear(self, place: Place, line: Line, share: float) -> None:
        """One more line, of which only a share is there yet."""
        self.append(place, [])
        cut = 1 + int(share * (len(line.text) - 2))
        self._torn[place] = line, cut
        self.home.append(line.text[:cut].encode(), place[1], place[0])

    def glue(self, place: Place, line: Line) -> None:
        """What was torn stays so, and the next record is glued to it."""
        torn, cut = self._torn.pop(place)
        self.files[place].append(replace(line, torn=torn.text[:cut]))
        self.home.append(f"{line.text}\n".encode(), place[1], place[0])

    def is_torn(self, place: Place) -> bool:
        return place in self._torn

    def replace(self, place: Place) -> None:
        """By a new file that says the same."""
        path = self.home.path(place[1], place[0])
        draft = path.with_name("draft")
        draft.write_bytes(path.read_bytes())
        os.replace(draft, path)
        self.home.append(b"", place[1], place[0])

    def remove(self, place: Place) -> None:
        del self.files[place]
        self._torn.pop(place, None)
        self.home.path(place[1], place[0]).unlink()

    def move(self, place: Place, folder: str) -> None:
        """Into another folder, over what may be there."""
        target = folder, place[1]
        if target == place:
            return
        self.home.path(place[1], place[0]).rename(self.home.path(target[1], folder))
        self.files[target] = self.files.pop(place)
        self._torn.pop(target, None)
        if place in self._torn:
            self._torn[target] = self._torn.pop(place)
