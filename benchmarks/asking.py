"""Are questions by thing and the hook before actions right? Made histories of work, with questions and actions.

    python benchmarks/asking.py [--part dev|held|proof|final|sealed] [--home FOLDER] [--show]
    python benchmarks/asking.py --episodes 100000 [--home FOLDER]

The histories of data/asking become logs of one memory, each project with its clones and worktrees, without an LLM and
without vectors. A question is right if the first answer's session is an expected one, and where none is expected, if
there is no answer. An action that repeats a recorded mistake is right if the told text has the expected piece, or one
that its writer accepts; an unrelated one if nothing is said. Rules were made with a look at `dev`, then at `held`,
`proof` and `final`, then all were asked `sealed` once.

`--episodes`: how long answers take in the largest project of a memory of so many (`made_memory.py`; takes minutes).
"""

import argparse
import json
import os
import random
import re
import statistics
import tempfile
import time
import uuid
from collections import defaultdict
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dream import PROJECT, make
from knowledge import OWNER, clock_of, plain
from service import environment

from anamnesis_pipeline.entities.linking import link
from anamnesis_pipeline.knowledge.dream import observe
from anamnesis_pipeline.pipeline.projects import SEEN
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.project_labels import NOTHING_PRIVATE
from anamnesis_pipeline.search.quoting import one_line
from anamnesis_pipeline.services.asking import Asked, Asking
from anamnesis_pipeline.services.before_action import ActionRequest, BeforeAction
from anamnesis_pipeline.services.ingest import ingest_all
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.wiring import open_pieces, open_pipeline, open_store
from anamnesis_pipeline.settings import Settings, load
from anamnesis_pipeline.sources.discovery import discover
from anamnesis_pipeline.sources.local import LocalHost
from anamnesis_pipeline.store.base import Store
from anamnesis_pipeline.store.entity_model import EntityKind
from anamnesis_tests.support.log_lines import Log

DATA = Path(__file__).parent / "data/asking"
ASKED = 100
"""Things of each kind that are asked for in a large memory."""
MACHINE = "box"


def session_id(project: str, name: str) -> str:
    """Return the id of a session of a history."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"{project}/{name}"))


def write_session(logs: Path, history: dict[str, Any], session: dict[str, Any], now: datetime) -> None:
    """Write the log of a session as Claude Code would."""
    clock, name = clock_of(history, now), session_id(history["project"], session["id"])
    log = Log(name, session["cwd"], version="2.0.30", gitBranch=session["branch"])
    for number, turn in enumerate(session["turns"]):
        common = {
            "timestamp": clock.stamp(turn["at"]),
            "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}-{number}")),
        }
        if "user" in turn:
            log.user(turn["user"], **common)
        elif "claude" in turn:
            log.assistant({"type": "text", "text": turn["claude"]}, message_id=f"msg_{common['uuid']}", **common)
        else:
            call = {"type": "tool_use", "id": f"toolu_{number}_{name}", "name": turn["tool"], "input": turn["input"]}
            log.assistant(call, message_id=f"msg_{common['uuid']}", **common)
            answer_id = uuid.uuid5(uuid.NAMESPACE_URL, f"{name}-{number}r")
            back = {"timestamp": clock.stamp(turn["at"], 2), "uuid": str(answer_id)}
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": turn["result"]}
            log.user([result | {"is_error": turn["error"]}], **back)
    folder = logs / "".join(sign if sign.isalnum() else "-" for sign in session["cwd"])
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in log.lines), encoding="utf-8")


def build(base: Path, histories: list[dict[str, Any]]) -> None:
    """Make a home of histories: all of ingest but vectors."""
    now, settings = datetime.now(UTC), load()
    with closing(open_store(settings)) as store:
        for history in histories:
            for folder in {*history["clones"], *(each["cwd"] for each in history["sessions"])}:
                store.settings.set(SEEN + folder, f"{OWNER}/{history['project']}")
            for session in history["sessions"]:
                write_session(base / "projects", history, session, now)
        ingest_all(open_pipeline(settings, store), discover(LocalHost(MACHINE), [str(base / "projects")]).sources)
        writer = EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), None)
        for history in histories:
            for note in history["notes"]:
                posted = note_of(
                    note["text"],
                    project=f"{OWNER}/{history['project']}",
                    instance=note["instance"],
                    type=note["type"],
                    tags=note.get("tags", ()),
                )
                writer.create(posted.draft(), embed=False)
        link(store)
        observe(store)


def judge_questions(store: Store, rows: list[dict[str, Any]], *, show: bool) -> None:
    """Print the shares of right first answers and of right silence, and the times, of each kind of question."""
    asking = Asking(store, NOTHING_PRIVATE, MACHINE)
    right: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    times: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        started = time.perf_counter()
        where = asking.where(f"{OWNER}/{row['project']}", ())
        body = asking.answer(Asked(row["kind"]), row["asked"], where, 5)
        times[row["kind"]].append((time.perf_counter() - started) * 1000)
        first = body["items"][0]["session_id"] if body["items"] else None
        expected = {session_id(row["project"], name) for name in row["sessions"]}
        is_right = first in expected if expected else first is None
        right[row["kind"], bool(expected)].append(is_right)
        if show and not is_right:
            names = [session_of(row["project"], each["session_id"]) for each in body["items"]]
            print(f"  {row['kind']} {row['project']} {row['asked']!r}: expected {row['sessions']}, found {names}")
            print(f"    {json.dumps(body['items'][:1], ensure_ascii=False)[:400]}")
    for kind in Asked:
        found, silent = right[kind, True], right[kind, False]
        p50, p95 = statistics.median(times[kind]), sorted(times[kind])[int(len(times[kind]) * 0.95)]
        print(
            f"{kind:<6} first right {sum(found)} of {len(found)}, silent {sum(silent)} of {len(silent)}, "
            f"p50 {p50:.1f} ms, p95 {p95:.1f} ms"
        )


_NAMES: dict[str, str] = {}


def session_of(project: str, name: str) -> str:
    return _NAMES.get(name, f"{project}?")


def comparable(text: str) -> str:
    """Return a text without what quoting changes."""
    return plain(one_line(text)).replace("`", "")


def judge_actions(store: Store, rows: list[dict[str, Any]], *, show: bool) -> None:
    """Print for how many mistakes and unrelated actions something is said, and the times."""
    teller = BeforeAction(store, NOTHING_PRIVATE, open_pieces(), MACHINE)
    told, silent, times = list[bool](), list[bool](), list[float]()
    for row in rows:
        given = row["input"]
        asked = ActionRequest(
            given.get("file_path", ""),
            given.get("old_string", ""),
            given.get("new_string", given.get("content", "")),
            given.get("command", ""),
            row["cwd"],
        )
        started = time.perf_counter()
        block = teller.tell(asked, datetime.now(UTC))
        times.append((time.perf_counter() - started) * 1000)
        said = comparable(block.text)
        pieces = [comparable(each) for each in (row["told"], *row["also"]) if each]
        is_right = any(each in said for each in pieces) if row["told"] else not said
        (told if row["told"] else silent).append(is_right)
        if show and not is_right:
            print(f"  {row['project']} {row['tool']} {json.dumps(given, ensure_ascii=False)[:200]}")
            print(f"    expected {row['told']!r}, told {[each.text[:200] for each in block.items]}")
    p95 = sorted(times)[int(len(times) * 0.95)]
    print(
        f"actions told {sum(told)} of {len(told)}, unrelated silent {sum(silent)} of {len(silent)}, "
        f"p50 {statistics.median(times):.1f} ms, p95 {p95:.1f} ms"
    )


def measure_times(kept: Path | None, episodes: int) -> None:
    """Print how long answers take: half of what is asked for is there, of tasks all words are."""
    with tempfile.TemporaryDirectory() as folder:
        home = kept or Path(folder) / "home"
        if not (home / "anamnesis.db").exists():
            make(home, episodes, 2_000, 300)
        with closing(open_store(Settings(home=home, log_roots=(), machine=MACHINE))) as store:
            link(store)
            asking, rng = Asking(store, NOTHING_PRIVATE, MACHINE), random.Random(3)
            where = asking.where(PROJECT, ())
            for kind, of in (
                (Asked.BLAME, EntityKind.FILE),
                (Asked.FIX, EntityKind.ERROR),
                (Asked.HOW, EntityKind.COMMAND),
            ):
                known = [name for _, name, *_ in store.entities.counted(PROJECT, [of])]
                there = rng.sample(known, min(ASKED, len(known)))
                runs = store.entities.ran(10 * ASKED, projects=(PROJECT,))
                tasks = [each.other for each in runs if each.other][:ASKED] if kind is Asked.HOW else []
                times = []
                for name in [*there, *(_absent(name) for name in there), *tasks, *(f"{task} zyx" for task in tasks)]:
                    started = time.perf_counter()
                    asking.answer(kind, name, where, 5)
                    times.append((time.perf_counter() - started) * 1000)
                p50, p95 = statistics.median(times), sorted(times)[int(len(times) * 0.95)]
                print(f"{kind:<6} {len(times)} asked, p50 {p50:.1f} ms, p95 {p95:.1f} ms")


def _absent(name: str) -> str:
    """Return a name that is not there, of the same words but one."""
    return re.sub(r"[a-z]{4,}", "zyxwv", name, count=1)


def main() -> None:
    """Build or take a home, and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", default="dev", choices=("dev", "held", "proof", "final", "sealed"))
    parser.add_argument("--episodes", type=int, help="measure times in a made memory of so many episodes instead")
    parser.add_argument("--home", type=Path)
    parser.add_argument("--show", action="store_true", help="print what is wrong")
    asked = parser.parse_args()
    if asked.episodes:
        measure_times(asked.home, asked.episodes)
        return
    histories = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((DATA / "histories").glob("*.json"))]
    for history in histories:
        _NAMES.update({session_id(history["project"], each["id"]): each["id"] for each in history["sessions"]})
    with tempfile.TemporaryDirectory() as folder:
        base = asked.home or Path(folder)
        logs = str(base / "projects")
        os.environ |= environment(base / "anamnesis", ANAMNESIS_LOG_ROOTS=logs, ANAMNESIS_MACHINE=MACHINE)
        if not (base / "anamnesis/anamnesis.db").exists():
            build(base, histories)
        questions, actions = (
            [row for row in json.loads((DATA / name).read_text(encoding="utf-8")) if row["part"] == asked.part]
            for name in ("questions.json", "actions.json")
        )
        with closing(open_store(load())) as store:
            judge_questions(store, questions, show=asked.show)
            judge_actions(store, actions, show=asked.show)


if __name__ == "__main__":
    main()
