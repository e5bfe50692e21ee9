"""Questions of `make bench-memory`, what is stored before they are asked, and what counts as a hit.

All but the reversals need ../shared.
"""

import functools
import importlib
import itertools
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from claude_qa import BENCH, DATA, SESSIONS
from service import SHARED

LOCOMO = SHARED / "data/locomo/locomo_dev5.json"
Result = dict[str, Any]
"""What an arm answers with: `excerpt` (and `summary`, if it shows one), `source` with `message_ids`, and `episodes`,
the ids of the posts that it shows."""


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its golds. `scope`: the project that is searched, None: all; `cwd`: the folder that it is asked
    in; `older`: the reversed statement.
    """

    id: str
    text: str
    kind: str
    golds: tuple[dict[str, Any], ...]
    scope: str | None = None
    cwd: str | None = None
    older: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Post:
    """A text that is stored as an episode. `exchange`: as its exchange, too, as the shared harness does."""

    id: str
    text: str
    timestamp: str
    project: str
    tags: tuple[str, ...] = ()
    exchange: bool = False


@dataclass(frozen=True, slots=True)
class Corpus:
    """What is stored. `logs`: the first letters of the names of the shared sessions, () for none, ("",) for all;
    `needs_shared`: logs, posts or questions are in ../shared.
    """

    name: str
    logs: tuple[str, ...] = ()
    posts: Callable[[Sequence[Question]], list[Post]] = field(default=lambda _: [])
    needs_shared: bool = True


@dataclass(frozen=True, slots=True)
class QuestionSet:
    """A set of questions over a corpus. `gate`: asked as a hook asks at each prompt, for a block of context."""

    name: str
    title: str
    corpus: Corpus
    questions: Callable[[], list[Question]]
    measures: tuple[str, ...] = ("hit@1", "hit@5", "recall@10", "MRR")
    gate: bool = False


def lines(path: Path) -> list[dict[str, Any]]:
    """Return the objects of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def over_logs(path: Path, part: str | None = None) -> list[Question]:
    """Return the questions of a file in the form of the shared ones, or those of one half."""
    rows = [row for row in lines(path) if part is None or row["part"] == part]
    return [Question(row["id"], row["question"], row["type"], tuple(row["gold"])) for row in rows]


def prompts() -> list[Question]:
    """Return the prompts that the logs answer and those on other matters, in turn, so that the first N have both."""
    rows = lines(DATA / "prompts.jsonl")
    both = zip((r for r in rows if r["related"]), (r for r in rows if not r["related"]), strict=True)
    return [
        Question(
            row["id"],
            row["prompt"],
            "related" if row["related"] else "unrelated",
            ({"message_ids": row["uuids"]},) if row["related"] else (),
            cwd=row["cwd"],
        )
        for pair in both
        for row in pair
    ]


def reversals(name: str) -> list[Question]:
    """Return one question a pair of statements; the gold is the newer one."""
    return [
        Question(
            row["id"],
            row["question"],
            row["split"],
            ({"episode": f"{row['id']}-new"},),
            older={"episode": f"{row['id']}-old"},
        )
        for row in lines(DATA / f"{name}.jsonl")
    ]


def statements(name: str) -> list[Post]:
    """Return every statement of the pairs, oldest first."""
    found = [
        Post(f"{row['id']}-{which}", said["text"], f"{said['date']}T15:00:00Z", row["project"])
        for row in lines(DATA / f"{name}.jsonl")
        for which, said in [
            ("old", row["old"]),
            ("new", row["new"]),
            *((f"unrelated{n}", other) for n, other in enumerate(row["unrelated"])),
        ]
    ]
    return sorted(found, key=lambda post: (post.timestamp, post.id))


def notes() -> list[Question]:
    """Return three questions a note: in its own words, in other words, and with no word in common."""
    return [
        Question(f"{number:02}-{wording}", row[wording], wording, ({"episode": f"note-{number:02}"},))
        for number, row in enumerate(lines(DATA / "fresh_notes.jsonl"))
        for wording in ("own", "other", "far")
    ]


def note_posts(_: Sequence[Question]) -> list[Post]:
    """Return the notes, written now."""
    now = datetime.now().astimezone().isoformat(timespec="seconds")
    return [
        Post(f"note-{number:02}", row["note"], now, f"acme/{('shop', 'infra', 'home')[number % 3]}")
        for number, row in enumerate(lines(DATA / "fresh_notes.jsonl"))
    ]


@functools.cache
def harness() -> Any:
    """The shared LoCoMo harness, for its way of reading the data."""
    sys.path.insert(0, str(SHARED / "bench/locomo"))
    return importlib.import_module("harness")


def conversation(sample: dict[str, Any]) -> str:
    """The project of a conversation."""
    return f"locomo-{sample['sample_id']}"


def locomo() -> list[Question]:
    """Return the questions of categories 1 to 4 of the development conversations, one of each in turn, so that the
    first N are of all; golds are the evidence turns.
    """
    found: list[list[Question]] = []
    for sample in json.loads(LOCOMO.read_text(encoding="utf-8")):
        project = conversation(sample)
        known = {turn["id"] for turn in harness().load_turns(sample)}
        found.append([])
        for asked in harness().load_questions(sample, known):
            golds = tuple({"episode": f"{project}/{turn}"} for turn in asked["evidence"])
            kind = harness().CATEGORIES[asked["category"]]
            found[-1].append(Question(f"{project}-{asked['n']:03}", asked["question"], kind, golds, scope=project))
    return [question for turn in itertools.zip_longest(*found) for question in turn if question is not None]


def turns(asked: Sequence[Question]) -> list[Post]:
    """Return every turn of the conversations that the questions are about, in order."""
    wanted = {question.scope for question in asked}
    return [
        Post(
            f"{conversation(sample)}/{turn['id']}",
            turn["text"],
            f"{(datetime.fromisoformat(turn['timestamp']) + timedelta(seconds=number)).isoformat()}Z",
            conversation(sample),
            (turn["session"], turn["speaker"]),
            exchange=True,
        )
        for sample in json.loads(LOCOMO.read_text(encoding="utf-8"))
        if conversation(sample) in wanted
        for number, turn in enumerate(harness().load_turns(sample))
    ]


@functools.cache
def shared_rule() -> Callable[[Result, dict[str, Any]], bool]:
    """The shared rule for questions over logs: the quote is shown, or a message that answers is named."""
    sys.path.insert(0, str(BENCH))
    rule: Callable[[Result, dict[str, Any]], bool] = importlib.import_module("score").hits
    return rule


def hits(result: Result, gold: dict[str, Any]) -> bool:
    """Return whether a result hits a gold: shows its post, is of one of its messages, or by the shared rule."""
    if "episode" in gold:
        return gold["episode"] in result["episodes"]
    if "message_ids" in gold:
        return not set(gold["message_ids"]).isdisjoint(result["source"]["message_ids"])
    return shared_rule()(result, gold)


def widened(question: Question, episodes: Iterable[Iterable[str]]) -> Question:
    """Return the question with golds of messages widened to all messages of the episodes that hold one of them: a block
    of context names episodes, so this is the rule for every arm.
    """
    groups = [set(group) for group in episodes]
    golds = tuple(
        {"message_ids": sorted(set(g["message_ids"]).union(*(e for e in groups if not e.isdisjoint(g["message_ids"]))))}
        if "message_ids" in g
        else g
        for g in question.golds
    )
    return Question(question.id, question.text, question.kind, golds, question.scope, question.cwd, question.older)


TWO = Corpus("sessions", SESSIONS)
FOUR = Corpus("prompts", (*SESSIONS, "55604662", "d6e0bada"))
ALL = Corpus("logs", ("",))
NOTES = Corpus("notes", ("",), note_posts)
FACTS, HELD_FACTS = (
    Corpus(name, posts=lambda _, name=name: statements(name), needs_shared=False)
    for name in ("fact_pairs", "fact_pairs_held_out")
)
TURNS = Corpus("locomo", posts=turns)
REVERSALS = ("hit@1", "hit@5", "MRR", "newer first")

SETS: dict[str, QuestionSet] = {
    each.name: each
    for each in (
        QuestionSet("sessions", "Questions over two code sessions", TWO, lambda: over_logs(BENCH / "dev.jsonl")),
        *(
            QuestionSet(
                name if part == "dev" else f"{name}-held",
                title if part == "dev" else f"{title}, held-out half",
                ALL,
                lambda name=name, part=part: over_logs(DATA / f"{name}.jsonl", part),
            )
            for part in ("dev", "held")
            for name, title in (
                ("conclusions", "Conclusions, reasons, preferences"),
                ("temporal", "What came before, after, first and last"),
                ("short", "Queries of one to four words"),
            )
        ),
        QuestionSet("silence", "Context at each prompt", FOUR, prompts, ("given", "hit@5"), gate=True),
        QuestionSet("notes", "Fresh notes", NOTES, notes),
        QuestionSet("reversals", "Reversed facts", FACTS, lambda: reversals("fact_pairs"), REVERSALS),
        QuestionSet(
            "reversals-held",
            "Reversed facts, held out",
            HELD_FACTS,
            lambda: reversals("fact_pairs_held_out"),
            REVERSALS,
        ),
        QuestionSet("locomo", "LoCoMo, development conversations", TURNS, locomo),
    )
}
