"""LongMemEval without an LLM: are the sessions and messages that answer among the first results?

    python benchmarks/longmemeval.py FILE [--out ROWS] [--limit N] [--fresh]

FILE is `longmemeval_s_cleaned.json`, `longmemeval_s.json` or another file of that form, from
https://github.com/xiaowu0162/LongMemEval: a list of questions (`question_id`, `question_type`, `question`), each with
its own history (`haystack_sessions`, lists of messages with `role` and `content`, `has_answer` where they answer;
`haystack_session_ids`, `haystack_dates`) and `answer_session_ids`. Questions whose id ends in `_abs` have no answer and
are left out, as the authors do for retrieval. All messages are stored, the assistant's, too. `any@5` of sessions is
what others report as R@5; `all@5` is the authors' recall_all.
"""

import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from chats import Asked, Chat, Message, arguments, facts, loaded, readable, report, run


def instant(date: str, second: int) -> str:
    """Return a date such as `2023/05/30 (Tue) 20:42`, so many seconds later, as ISO 8601."""
    day, time = date.partition(" ")[0], date.rpartition(" ")[2]
    return f"{(datetime.strptime(f'{day} {time}', '%Y/%m/%d %H:%M') + timedelta(seconds=second)).isoformat()}Z"


def chat_of(item: dict[str, Any]) -> Chat:
    """Return one question with its history."""
    messages, answering = [], []
    sessions = zip(item["haystack_session_ids"], item["haystack_dates"], item["haystack_sessions"], strict=True)
    for order, (session, date, turns) in enumerate(sessions):
        for number, turn in enumerate(turns):
            message_id = f"{order}/{session}/{number}"
            messages.append(Message(message_id, session, f"{turn['role']}: {turn['content']}", instant(date, number)))
            if turn.get("has_answer"):
                answering.append(message_id)
    asked = Asked(
        item["question_id"],
        item["question_type"],
        item["question"],
        tuple(answering),
        tuple(dict.fromkeys(item["answer_session_ids"])),
    )
    return Chat(messages, [asked])


def chats_of(path: Path) -> Iterator[Chat]:
    """Yield the questions that have an answer; exit with a sentence at a file or question that is not of this form."""
    items = loaded(path)
    if not isinstance(items, list):
        sys.exit(f"Cannot use {path}: it is not a list of questions, as longmemeval_s_cleaned.json is; name that file")
    for number, item in enumerate(items, 1):
        with readable(f"question {number} of {path}"):
            if item["question_id"].endswith("_abs"):
                continue
            chat = chat_of(item)
        yield chat


def main() -> None:
    """Store, ask, report."""
    args = arguments("longmemeval", __doc__, "FILE", "longmemeval_s_cleaned.json")
    if not args.data.is_file():
        sys.exit(f"No file {args.data}. Download longmemeval_s_cleaned.json: https://github.com/xiaowu0162/LongMemEval")
    report(run(chats_of(args.data), args.out, facts("longmemeval", args.data), args.limit, args.fresh))


if __name__ == "__main__":
    main()
