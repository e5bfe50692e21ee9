"""BEAM without an LLM: are the messages that a probing question is about among the first results?

    python benchmarks/beam.py FOLDER [--out ROWS] [--limit N] [--fresh]

FOLDER is `chats/100K`, `500K`, `1M` or `10M` of https://github.com/mohammadtavakoli78/BEAM: a folder for each chat,
with `chat.json` (or the shorter `chat_trunecated.json`, which the authors ask where there is one): batches
(`batch_number`) of `turns` of messages (`id`, `role`, `content`, at times `time_anchor`), for 10M in plans; and with
`probing_questions/probing_questions.json`: lists by kind of questions (`question`) with `source_chat_ids`, ids of the
messages that answer, in lists or by name. A batch counts as a session. Ids that several messages of a chat have are
left out of the golds. Questions without golds, as those for abstention, are left out.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from chats import Asked, Chat, Message, arguments, facts, loaded, readable, report, run

START = datetime(2024, 1, 1)
"""The day of messages before the first that names one."""


def batches_of(chat: list[dict[str, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """Yield the name and the turns of each batch; a chat of 10M consists of plans, each `{name: batches}`."""
    for part in chat:
        if "turns" in part:
            yield str(part["batch_number"]), part["turns"]
        else:
            for plan, batches in part.items():
                yield from ((f"{plan}/{batch['batch_number']}", batch["turns"]) for batch in batches)


def messages_of(chat: list[dict[str, Any]]) -> tuple[list[Message], dict[int, Message]]:
    """Return all messages in order, and by their number those that share it with no other."""
    found, numbers, day = [], [], START
    for session, turns in batches_of(chat):
        for said in (said for turn in turns for said in turn):
            with suppress(KeyError, ValueError):
                day = datetime.strptime(said["time_anchor"], "%B-%d-%Y")
            when = f"{(day + timedelta(seconds=len(found))).isoformat()}Z"
            found.append(Message(f"{len(found)}", session, f"{said['role']}: {said['content']}", when))
            numbers.append(said["id"])
    counts = Counter(numbers)
    return found, {number: each for number, each in zip(numbers, found, strict=True) if counts[number] == 1}


def ids_in(value: Any) -> list[int]:
    """Return the ids in nested lists and objects."""
    if isinstance(value, dict | list):
        return [each for part in (value.values() if isinstance(value, dict) else value) for each in ids_in(part)]
    return [value] if isinstance(value, int) else []


def chat_of(folder: Path) -> Chat:
    """Return one chat with its questions."""
    shorter = folder / "chat_trunecated.json"
    probing = loaded(folder / "probing_questions/probing_questions.json")
    messages, by_number = messages_of(loaded(shorter if shorter.exists() else folder / "chat.json"))
    questions = []
    for kind, asked in probing.items():
        for number, row in enumerate(asked):
            golds = {
                by_number[each].id: by_number[each] for each in ids_in(row.get("source_chat_ids")) if each in by_number
            }
            if golds:
                sessions = dict.fromkeys(gold.session for gold in golds.values())
                name = f"{folder.name}-{kind}-{number}"
                questions.append(Asked(name, kind, row["question"], tuple(golds), tuple(sessions)))
    return Chat(messages, questions)


def chats_of(folder: Path) -> Iterator[Chat]:
    """Yield the chats in the order of their numbers; exit with a sentence at one that is not of this form."""
    places = [path.parents[1] for path in folder.glob("*/probing_questions/probing_questions.json")]
    for place in sorted(places, key=lambda path: (not path.name.isdigit(), path.name.zfill(9))):
        with readable(place):
            chat = chat_of(place)
        yield chat


def main() -> None:
    """Store, ask, report."""
    args = arguments("beam", __doc__, "FOLDER", "chats/100K of the repository")
    if not any(args.data.glob("*/probing_questions/probing_questions.json")):
        sys.exit(f"No chats in {args.data}. Clone https://github.com/mohammadtavakoli78/BEAM and name its chats/100K")
    report(run(chats_of(args.data), args.out, facts("beam", args.data), args.limit, args.fresh))


if __name__ == "__main__":
    main()
