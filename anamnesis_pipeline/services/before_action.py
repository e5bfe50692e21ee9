"""What a session hears before it edits a file or runs a command: what was decided about just that, or how the command
failed last and what ended it. Nothing else, and each once a session.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePosixPath

from anamnesis_pipeline.embeddings.pieces import PieceCounter
from anamnesis_pipeline.entities.in_actions import Terms, is_about, rules, terms_of_command, terms_of_edit
from anamnesis_pipeline.entities.naming import command_names, file_name, form_of, root_of
from anamnesis_pipeline.knowledge.observing import CLAUDE
from anamnesis_pipeline.knowledge.topic_files import LESSONS
from anamnesis_pipeline.model import HOLDING, MEMORY_BEGINS, MEMORY_ENDS, MEMORY_PREFACES, Episode
from anamnesis_pipeline.parsing.claude_logs.commands import shown as shown_script
from anamnesis_pipeline.search.context_items import Item, SourceClass, class_of
from anamnesis_pipeline.search.project_labels import Private
from anamnesis_pipeline.search.quoting import id_label, label, one_line, quoted
from anamnesis_pipeline.search.token_budget import Block, count_tokens, whole_sentences
from anamnesis_pipeline.services.folder_project import projects_of_folder
from anamnesis_pipeline.services.short_ids import short_ids
from anamnesis_pipeline.services.things import Where, ended_after, file_mentions
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import EntityKind, Mention, Relation
from anamnesis_pipeline.store.knowledge_model import Observation, Signal
from anamnesis_pipeline.store.records.context import Shown
from anamnesis_pipeline.store.records.entities import leaf_of

MAX_TOKENS = 150
MAX_STATEMENTS = 600
"""Statements of a project among which one about an action is looked for, the newest of each kind."""
MAX_RUNS = 200
"""Runs of a program among which the last one of a script is looked for, the newest."""
MAX_TOLD = 2
_SAID = frozenset({Signal.DECISION, Signal.PREFERENCE, Signal.CORRECTION, Signal.FACT, Signal.REQUEST})
"""Requests only where they say what is always, never or no longer to be done."""
_NOTED = frozenset({Signal.NOTE, Signal.TOPIC})
_TYPES = frozenset({"decision", "preference", "lesson", "procedure"})
"""Types of notes that hold beyond what they were made for."""
MIN_QUOTE = 12
"""Tokens; a shorter quote says nothing."""
MAX_MESSAGE_CHARS = 400
_Form = tuple[tuple[str, ...], ...]
_IDLE = frozenset({"cd", "date", "echo", "pwd", "sleep", "true", "wait"})
"""Programs in a script that neither fail nor mend anything."""


@dataclass(frozen=True, slots=True)
class ActionRequest:
    """An edit of `path` that puts `after` in place of `before`, or a `command`. `machine`: where `cwd` is; empty:
    this one.
    """

    path: str = ""
    before: str = ""
    after: str = ""
    command: str = ""
    cwd: str = ""
    machine: str = ""
    session_id: str = ""
    max_tokens: int = MAX_TOKENS


class BeforeAction:
    """Tells sessions what is known of what they are about to do. Stateless; the store records what each was told."""

    def __init__(self, store: Store, private: Private, pieces: PieceCounter, machine: str) -> None:
        """:param machine: name of this machine."""
        self._store, self._private, self._pieces, self._machine = store, private, pieces, machine

    def tell(self, asked: ActionRequest, now: datetime) -> Block:
        """Return the block for a session, empty if nothing is known. Its items count as told from now on."""
        machine = asked.machine or self._machine
        projects = (
            projects_of_folder(self._store, asked.cwd, machine, is_here=machine == self._machine, private=self._private)
            if asked.cwd
            else ()
        )
        if not projects:
            return Block()
        where = Where(projects, self._private, (*projects, *self._private.around(asked.cwd, machine)))
        items = [*self._failed(asked, where), *self._said(asked, where)]
        memory = self._store.context.session(asked.session_id).shown if asked.session_id else ()
        told = {each.episode_id for each in memory}
        new = {each.shown_as: each for each in items if each.shown_as not in told}
        block = self._block(list(new.values())[:MAX_TOLD], asked.max_tokens)
        if block.items and asked.session_id:
            shown = [Shown(each.shown_as) for each in block.items]
            if len(self._store.context.show(asked.session_id, shown, now)) < len(shown):
                return Block()  # another call told it meanwhile
        return block

    def _block(self, items: Sequence[Item], most: int) -> Block:
        """Return a block of as many items as fit into so many tokens, with less around them than at prompts."""
        short = short_ids(self._store, [each.episode.episode_id for each in items])
        lines, chosen = list[str](), list[Item]()
        left = most - count_tokens("\n".join([MEMORY_BEGINS, MEMORY_PREFACES[1], MEMORY_ENDS]), self._pieces)
        for item in items:
            about = f"- {item.episode.timestamp:%Y-%m-%d}, {label(item.called, 20)}, source {item.said_by}: "
            name = f" [{id_label(short[item.episode.episode_id])}]"
            share = left - count_tokens(f"{about}{quoted('')}{name}\n", self._pieces)
            if share < MIN_QUOTE or not (text := whole_sentences(one_line(item.text), share, self._pieces)):
                break
            lines.append(f"{about}{quoted(text)}{name}")
            chosen.append(item)
            left -= count_tokens(f"{lines[-1]}\n", self._pieces)
        if not lines:
            return Block()
        text = "\n".join([MEMORY_BEGINS, MEMORY_PREFACES[1], *lines, MEMORY_ENDS])
        return Block(text, count_tokens(text, self._pieces), tuple(chosen))

    def _said(self, asked: ActionRequest, where: Where) -> Iterator[Item]:
        """Yield what was said about the very file or command, the newest first."""
        there: set[str] = set()
        if asked.path:
            root = root_of(where.projects[0], [asked.cwd])
            name = file_name(asked.path, asked.cwd, root)
            terms = terms_of_edit(name, asked.before, asked.after)
            there = {each.session_id for each in file_mentions(self._store, name, where, Relation.EDITED)}
        else:
            terms = terms_of_command(asked.command)
        if terms == Terms():
            return
        records = self._store.observations
        found = [
            each
            for signals in (_SAID, _NOTED)
            for project in where.projects
            for each in records.of_project(signals, project, MAX_STATEMENTS)
            if each.session_id != asked.session_id or not asked.session_id
        ]
        about = [
            each
            for each in found
            if is_about(each.quote, terms, was_there=each.session_id in there)
            and (each.signal is not Signal.REQUEST or rules(each.quote) or rules(self._message(each)))
        ]
        episodes = self._store.episodes.get([each.episode_id for each in about])
        for each in sorted(about, key=lambda one: one.number, reverse=True):
            episode = episodes.get(each.episode_id)
            if episode is not None and episode.status in HOLDING and where.shows(episode) and _holds(each, episode):
                yield _item(each, episode, self._message(each))

    def _failed(self, asked: ActionRequest, where: Where) -> Iterator[Item]:
        """Yield how the command failed, if its last run in the project did; also with other arguments, if it succeeded
        with other options.
        """
        wanted, form = shown_script(asked.command), _form(asked.command)
        for name, _ in command_names(asked.command)[:3] if wanted and form else ():
            leaf = leaf_of(EntityKind.COMMAND, name)
            found = self._store.entities.named(EntityKind.COMMAND, leaf, MAX_RUNS, projects=where.projects)
            runs = [each for each in found if _is_run(each, form)]
            last = max(runs, key=lambda each: (each.at is not None, each.at, each.place), default=None)
            if last is None or last.relation is not Relation.FAILED or last.session_id == asked.session_id:
                continue
            episode = self._store.episodes.get([last.episode_id]).get(last.episode_id)
            is_same = shown_script(last.detail) == wanted
            if episode is None or not where.shows(episode) or not (text := self._failure(last, where, is_same=is_same)):
                continue
            yield replace(Item(episode, text, SourceClass.TOOL), called="last run", is_entry=True)
            return

    def _failure(self, last: Mention, where: Where, *, is_same: bool) -> str:
        """Return what is known of a failed run: its error, what ended it, and how that was told.

        :param is_same: of the very command; of one like it only another form that succeeded counts.
        """
        line, ended, told = ended_after(self._store, last, where)
        if not is_same and _form(last.detail) in {(), *map(_form, ended)}:
            return ""
        if not is_same and not ended:
            return ""
        pieces = [
            f"{shown_script(last.detail)} failed",
            f": {line}" if line else "",
            f". {_by(ended)}: {'; '.join(ended)}" if ended else "",
            f". {told}" if told else "",
        ]
        return "".join(pieces) if line or ended or told else ""

    def _message(self, said: Observation) -> str:
        """Return the whole message that has a statement; empty if it is long, or of no session."""
        for part in self._store.forgetting.parts([said.episode_id]) if said.signal in _SAID else ():
            for segment in part.segments:
                if segment.uuid == said.message_id and said.quote in segment.text:
                    return segment.text if len(segment.text) <= MAX_MESSAGE_CHARS else ""
        return ""


def _form(script: str) -> _Form:
    """Return the form of a script without commands that do nothing to its outcome."""
    return tuple(each for each in form_of(script) if each[0].partition(" ")[0] not in _IDLE)


def _is_run(mention: Mention, form: _Form) -> bool:
    """Return whether a command of this form ran, alone, or with success within a longer script."""
    own = _form(mention.detail)
    return (mention.relation is Relation.FAILED and own == form) or (
        mention.relation is Relation.RAN and {*form} <= {*own}
    )


def _by(ended: Sequence[str]) -> str:
    """Return how to name what followed a failure: a run after a mere wait need not have ended it."""
    waited = len(ended) == 1 and any(name == "sleep" for name, _ in command_names(ended[0]))
    return "Succeeded later" if waited else "Ended by"


def _holds(said: Observation, episode: Episode) -> bool:
    """Return whether a note or a sentence of a text holds beyond its subject: of types and files made for that."""
    if said.signal is Signal.NOTE:
        return said.key in _TYPES
    return said.signal is not Signal.TOPIC or PurePosixPath(episode.path.replace("\\", "/")).stem == LESSONS


def _item(said: Observation, episode: Episode, message: str) -> Item:
    """Return a statement with what was said beside it, if that is short, else with its reason."""
    reason = f" {said.answer}" if said.answer and said.answer not in said.quote else ""
    by = SourceClass.USER if said.signal in _SAID and said.key != CLAUDE else class_of(episode)
    called = said.key if said.signal is Signal.NOTE else _CALLED.get(said.signal, str(said.signal))
    return Item(episode, message or said.quote + reason, by, called=called, is_entry=True)


_CALLED = {Signal.TOPIC: "lesson", Signal.REQUEST: "request"}
