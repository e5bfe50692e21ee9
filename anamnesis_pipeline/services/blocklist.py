"""Manage the blocklist of rules and tombstones: add, list and lift entries."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime

from anamnesis_pipeline.errors import RuleRefused
from anamnesis_pipeline.model import MAX_RECORDS, EpisodeFilter, Source, record_id
from anamnesis_pipeline.parsing.text.wording import counted
from anamnesis_pipeline.pipeline.crawl import folder_of
from anamnesis_pipeline.pipeline.documents import BETWEEN_TITLES
from anamnesis_pipeline.pipeline.exclusion import RULES, STAMP, content_of, stored_rules
from anamnesis_pipeline.pipeline.forgotten_lines import file_key
from anamnesis_pipeline.pipeline.publish import delete_episode
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE, Private
from anamnesis_pipeline.sources.exclusion import RULE_ID, Rule, RuleKind, RuleSet, checked, sha256_of
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.records.exclusion import Lifted
from anamnesis_pipeline.store.records.session_notes import is_of_log
from anamnesis_pipeline.store.records.settings import PROJECT_ALIASES
from anamnesis_pipeline.store.session_model import SESSION_KIND

STAYS = "what is stored of it already stays; anamnesis forget, or POST /api/forget, removes it"
MAX_RULES = 10_000
FILE = "file"
_PAGE = 500


def add_rule(store: Store, rule: Rule) -> tuple[Rule, bool]:
    """Store a rule. From now on matching content is not read; content stored already stays. Return True when the rule
    is new; an existing rule gets the new reason.

    :raises RuleRefused: a value that is invalid for its kind, or too many rules.
    """
    rule = checked(rule)
    rules = {known.rule_id: known for known in stored_rules(store.settings)}
    known = rules.get(rule.rule_id)
    if known is None and len(rules) >= MAX_RULES:
        raise RuleRefused(f"there are {MAX_RULES:,} rules; remove some, or exclude a folder or a pattern instead")
    added_at = known.added_at if known else datetime.now(UTC)
    if known:
        rule = replace(rule, episode_id=rule.episode_id or known.episode_id, label=rule.label or known.label)
    rule = replace(rule, added_at=added_at)
    body = asdict(rule) | {"added_at": rule.added_at.isoformat()}
    store.settings.set(RULES + rule.rule_id, body)
    store.settings.set(STAMP, uuid.uuid4().hex)  # after the rule: a reader that sees the stamp sees the rule
    return rule, known is None


def exclude_episode(store: Store, episode_id: str, reason: str) -> Rule | None:
    """Delete an episode and exclude its content: its messages in every log, and its text from every source. None: there
    is no such id.
    """
    episode = store.episodes.get([episode_id]).get(episode_id)
    if episode is None:
        return None
    rule, _ = add_rule(
        store, Rule(RuleKind.CONTENT, sha256_of(content_of(episode)), reason=reason, episode_id=episode_id)
    )
    delete_episode(store, episode_id, reason=reason)
    return rule


def lift(store: Store, entry_id: str) -> Lifted | None:
    """Remove a rule or a tombstone, or both where they belong to one episode. None: there is no such id."""
    rules = stored_rules(store.settings)
    episode_id = entry_id
    if entry_id.startswith(RULE_ID):
        episode_id = next((rule.episode_id for rule in rules if rule.rule_id == entry_id), "")
    going = [r.rule_id for r in rules if r.rule_id == entry_id or (episode_id and r.episode_id == episode_id)]
    for rule_id in going:
        store.settings.set(RULES + rule_id, None)
    released = sum(map(store.exclusion.release, going))
    ids = [episode_id, *(record_id(episode_id, number) for number in range(MAX_RECORDS))] if episode_id else []
    lifted = store.exclusion.lift([*going, *ids])
    if going or lifted.files:
        store.settings.set(STAMP, uuid.uuid4().hex)  # the next scan compares every file, even if hosts see no change
    if not going and not lifted.tombstones:
        return None
    return replace(lifted, parts=lifted.parts + released)


@dataclass(frozen=True, slots=True)
class Entry:
    """One blocklist entry. `kind`: a rule's kind, or `episode`, `file` or `output` for a tombstone. `held`: chunks in
    quarantine until the rule is lifted. `label`: a readable name where the value is none; for a tombstone the file that
    had its text, if known.
    """

    id: str
    kind: str
    value: str
    machine: str
    reason: str
    added_at: datetime
    episode_id: str
    held: int = 0
    label: str = ""


def blocklist(
    store: Store, limit: int, before: tuple[datetime, str] | None = None, private: Private = NOTHING_PRIVATE
) -> list[Entry]:
    """Return entries older than `before`, the newest first. Of a private source, only rules name files."""
    held = store.exclusion.held()
    rules = [entry_of(rule, held.get(rule.rule_id, 0)) for rule in stored_rules(store.settings)]
    tombstones = store.exclusion.tombstones(limit, before)
    places = _places(store, [t.episode_id for t in tombstones], private)
    graves = [
        Entry(
            t.episode_id,
            _kind_of(t.episode_id),
            "",
            "",
            t.reason,
            t.deleted_at,
            t.episode_id,
            label=places.get(t.episode_id, ""),
        )
        for t in tombstones
    ]
    found = [e for e in rules if before is None or (e.added_at, e.id) < before]
    return sorted([*found, *graves], key=lambda e: (e.added_at, e.id), reverse=True)[:limit]


def _places(store: Store, tombstones: Sequence[str], private: Private) -> dict[str, str]:
    """Return tombstone -> the first file that had its text, named as hits name it, with the heading unless the text was
    forgotten with it.
    """
    sources = {source.key: source for source in store.files.sources()}
    files = {key: its[0] for key, its in store.exclusion.stood_in(tombstones).items()}
    if any(_kind_of(key) == FILE for key in tombstones):
        files |= {file_key(key, path): (key, path) for key in sources for path in store.files.cursors(key)}
    titles = {part.part_id: part.section.title[1:] for part in store.forgetting.parts(tombstones) if part.section}
    return {
        key: private.file_shown(source, BETWEEN_TITLES.join((place_shown(sources[source], path), *titles.get(key, ()))))
        for key in tombstones
        if key in files
        for source, path in (files[key],)
    }


def place_shown(source: Source, path: str) -> str:
    """Return a file's name as hits show it: `machine:/folder/name`; for an upload, its file name."""
    if source.kind == "reserved":
        return f"{source.key}: {path.rpartition('/')[2]}"
    return f"{source.machine}:{folder_of(source)}/{path}"


def matching_episodes(store: Store, rule: Rule) -> Iterator[str]:
    """Yield ids of the stored episodes that a rule would exclude. Skips session records of logs, which follow their
    session's episodes. Reads all episodes.
    """
    rules, cursor = RuleSet((rule,), store.settings.get(PROJECT_ALIASES, {})), None
    while True:
        page = store.episodes.page(EpisodeFilter(include_superseded=True), _PAGE, cursor)
        for episode in page.items:
            if episode.kind == SESSION_KIND and is_of_log(episode.source, episode.session_id):
                continue
            of_text = rules.of_content(content_of(episode)) or rules.of_content(episode.summary)
            of_place = rules.of_path(episode.machine, episode.path) or rules.of_session(episode.session_id)
            if of_text or of_place or rules.of_project(episode.project):
                yield episode.episode_id
        cursor = page.next_cursor
        if cursor is None:
            return


def what_comes_back(entry_id: str, lifted: Lifted) -> str:
    """Describe, for users, what happens after an entry was lifted."""
    found = []
    if lifted.parts:
        found.append(f"what is stored of it ({counted(lifted.parts, 'part')}) comes back with the next ingest")
    if lifted.files:
        found.append(
            f"{counted(lifted.files, 'file')} that had it will be read again from the beginning, and it comes back if "
            "it is still there"
        )
    if entry_id.startswith(RULE_ID):
        found.append("what the rule kept from being read is read by the next crawl")
    return "; ".join(found) or "nothing of it is kept here: it can come in again, but not automatically"


def entry_of(rule: Rule, held: int = 0) -> Entry:
    """Return a rule as a blocklist entry."""
    return Entry(
        rule.rule_id,
        rule.kind,
        rule.value,
        rule.machine,
        rule.reason,
        rule.added_at,
        rule.episode_id,
        held,
        rule.label,
    )


def _kind_of(tombstone: str) -> str:
    """Return the entry kind of a tombstone; those of files and outputs have it as their prefix."""
    name = tombstone.partition(":")[0]
    return name if name in {FILE, "output"} else "episode"
