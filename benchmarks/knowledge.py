"""Are proposals right? Made histories of work with Claude, each with what a careful reader would want proposed.

    python benchmarks/knowledge.py [--part dev|test|final|held|proof] [--home FOLDER] [--show]

The histories of data/histories become logs, files, memories and notes of one memory, each in a project of its own, with
their dates moved so that they end now. It is ingested and embedded with MiniLM, without an LLM; `anamnesis dream` runs
on a copy, and its open proposals are compared with the expected ones. A proposal is right if it shares a piece of
evidence with an expected one of its kind and project, one piece containing the other. An expected one of several kinds
counts under its first; a proposal that only an optional one matches is left out. `--home` keeps what was ingested, and
takes it from there the next time. Rules were made with a look at `dev` and `test`, and `final` and `held` have
been looked at since; their writers had seen no detector. `proof` is held out: no detector was written or changed with a
look at it, and its writer had seen neither a detector nor `held`.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from service import environment

from anamnesis_pipeline.cli.ingest import run_ingest
from anamnesis_pipeline.embeddings.base import query_vectors
from anamnesis_pipeline.embeddings.cores import Priority
from anamnesis_pipeline.embeddings.registry import MINILM
from anamnesis_pipeline.pipeline.source_specs import put_specs
from anamnesis_pipeline.runtime.home_wiring import open_redactor
from anamnesis_pipeline.search.levels import measure_level
from anamnesis_pipeline.services.posted import note_of
from anamnesis_pipeline.services.posting import EpisodeWriter
from anamnesis_pipeline.services.wiring import open_pieces, open_pool_of, open_store, wanted_space
from anamnesis_pipeline.settings import load
from anamnesis_pipeline.sources.specs import DOCUMENTS, SourceSpec, built_in_specs
from anamnesis_pipeline.store.knowledge_model import Kind
from anamnesis_tests.support.log_lines import Log

HISTORIES = Path(__file__).parent / "data/histories"
MEMORIES = "memory/"
"""Files that Claude Code keeps beside a project's logs; the others are in its folder."""
OWNER = "made"
INSIDE = 200
"""Max proposals that are listed of a kind."""

History = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a made person works: below `base` their home, with Claude Code's folder, and that of Anamnesis."""

    base: Path

    @property
    def home(self) -> Path:
        """Return the folder of Anamnesis."""
        return self.base / "anamnesis"

    @property
    def logs(self) -> Path:
        """Return the folder of Claude Code's project folders."""
        return self.base / ".claude/projects"

    def work(self, project: str) -> Path:
        """Return the folder of a project."""
        return self.base / "work" / project

    def claude(self, project: str) -> Path:
        """Return the folder that Claude Code keeps for a project."""
        return self.logs / "".join(sign if sign.isalnum() else "-" for sign in str(self.work(project)))

    def environment(self) -> dict[str, str]:
        """Return the variables of a process that uses this home."""
        return environment(
            self.home, ANAMNESIS_LOG_ROOTS=str(self.logs), ANAMNESIS_MACHINE="box", ANAMNESIS_MODEL=MINILM
        )


def histories_of(part: str) -> list[History]:
    """Return the histories of a part.

    :raises ValueError: a piece of expected evidence is not in its history.
    """
    histories = []
    for path in sorted((HISTORIES / part).glob("*.json")):
        history = json.loads(path.read_text(encoding="utf-8"))
        texts = [plain(text) for text in texts_of(history)]
        for piece in (piece for each in history["expected"] for piece in each["evidence"]):
            if not any(plain(piece) in text for text in texts):
                raise ValueError(f"{path}: {piece!r} is not in the history; quote a piece of it word by word")
        histories.append(history)
    return histories


def texts_of(history: History) -> Iterator[str]:
    """Yield everything that is said, noted, called, answered or written in a history."""
    for held in (*history["files"].values(), *history["notes"]):
        yield held["text"]
    for turn in (turn for session in history["sessions"] for turn in session["turns"]):
        yield from (turn[who] for who in ("user", "claude", "result") if who in turn)
        yield from turn.get("input", {}).values()


# --- a home made of histories -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Clock:
    """Moves the times of a history so that it ends now."""

    shift: timedelta

    def at(self, text: str) -> datetime:
        """Return a time of the history, moved."""
        return datetime.fromisoformat(text) + self.shift

    def stamp(self, text: str, seconds: float = 0) -> str:
        """Return it as a log has it, so many seconds later."""
        moved = self.at(text) + timedelta(seconds=seconds)
        return moved.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def touch(self, path: Path, text: str) -> None:
        """Set when a file was changed last."""
        at = self.at(text).timestamp()
        os.utime(path, (at, at))


def clock_of(history: History, now: datetime) -> Clock:
    return Clock(now - datetime.fromisoformat(history["now"]))


def projects_of(history: History) -> set[str]:
    """Return the projects that a history is about."""
    named = [each.get("project") for each in (*history["sessions"], *history["notes"])]
    return {history["project"], *filter(None, named)}


def write_session(place: Place, project: str, session: History, clock: Clock) -> None:
    """Write the log of a session as Claude Code would."""
    session_id = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{project}/{session['id']}"))
    log = Log(session_id, str(place.work(project)), version="2.0.30", gitBranch="main")
    for number, turn in enumerate(session["turns"]):
        name = f"{session_id}-{number}"
        common = {"timestamp": clock.stamp(turn["at"]), "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, name))}
        if "user" in turn:
            log.user(turn["user"], **common)
        elif "claude" in turn:
            log.assistant({"type": "text", "text": turn["claude"]}, message_id=f"msg_{common['uuid']}", **common)
        else:
            call = {"type": "tool_use", "id": f"toolu_{number}_{session_id}", "name": turn["tool"]}
            log.assistant(call | {"input": turn["input"]}, message_id=f"msg_{common['uuid']}", **common)
            answered = {
                "timestamp": clock.stamp(turn["at"], 2),
                "uuid": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{name}r")),
            }
            result = {"type": "tool_result", "tool_use_id": call["id"], "content": turn["result"]}
            log.user([result | {"is_error": turn["error"]}], **answered)
    path = place.claude(project) / f"{session_id}.jsonl"
    path.write_text("".join(f"{line}\n" for line in log.lines), encoding="utf-8")
    clock.touch(path, session["turns"][-1]["at"])


def write_history(place: Place, history: History, clock: Clock) -> None:
    """Write the logs and files of a history; each of its projects is a repository with a remote of its name."""
    for project in projects_of(history):
        place.claude(project).mkdir(parents=True, exist_ok=True)
        (place.work(project) / ".git").mkdir(parents=True)
        remote = f'[remote "origin"]\n\turl = git@github.com:{OWNER}/{project}.git\n'
        (place.work(project) / ".git/config").write_text(remote, encoding="utf-8")
    for name, file in history["files"].items():
        folder = place.claude if name.startswith(MEMORIES) else place.work
        path = folder(history["project"]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file["text"], encoding="utf-8")
        clock.touch(path, file["changed"])
    for session in history["sessions"]:
        write_session(place, session.get("project") or history["project"], session, clock)


def build(place: Place, histories: Sequence[History]) -> None:
    """Make a home of histories: everything that `anamnesis ingest` does, after their notes were posted."""
    now, started = datetime.now(UTC), time.monotonic()
    os.environ |= place.environment()
    settings = load()
    for history in histories:
        write_history(place, history, clock_of(history, now))
    folders = sorted(project for history in histories for project in projects_of(history))
    specs = [
        SourceSpec(project, DOCUMENTS, str(place.work(project)), machine=settings.machine, project=f"{OWNER}/{project}")
        for project in folders
    ]
    with closing(open_store(settings)) as store:
        put_specs(store.settings, specs, built_in_specs(settings.log_roots, settings.machine), settings.machine)
        writer = EpisodeWriter(store, open_redactor(settings).mask_text, open_pieces(), None)
        for history in histories:
            clock = clock_of(history, now)
            for note in history["notes"]:
                posted = note_of(
                    note["text"],
                    project=f"{OWNER}/{note.get('project') or history['project']}",
                    instance=note["instance"],
                    type=note["type"],
                    tags=note.get("tags", ()),
                    subject=note.get("subject"),
                )
                writer.create(posted.model_copy(update={"timestamp": clock.at(note["at"])}).draft(), embed=False)
    run_ingest(settings, lambda text: None)
    with closing(open_store(settings)) as store:
        space = wanted_space(settings, store)
        with closing(open_pool_of(store, space, priority=Priority.QUERY)) as pool:
            pool.load()
            measure_level(store, space, lambda text, _: query_vectors(pool.embed_with_tokens([text], "query")))
        print(f"ingested in {time.monotonic() - started:.0f} s: {store.overview.counts()}")


# --- proposals against what is expected ---------------------------------------------------------------------


def dream(place: Place) -> list[dict[str, Any]]:
    """Dream on a copy of the home. Return the open proposals."""

    def cli(home: Path, *words: str) -> Any:
        command = [sys.executable, "-m", "anamnesis_pipeline", "dream", *words, "--json"]
        env = place.environment() | {"ANAMNESIS_HOME": str(home)}
        return json.loads(subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE).stdout)

    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        shutil.copytree(place.home, home)
        run = cli(home, "run")
        print(f"dreamed in {run['seconds']:.1f} s: {run['observations']} observations" + problems_text(run["problems"]))
        kinds = [cli(home, "list", "--kind", str(kind), "--limit", str(INSIDE)) for kind in Kind]
    return [proposal for found in kinds for proposal in found]


def problems_text(problems: dict[str, str]) -> str:
    return "".join(f"\n  {name} failed: {why}" for name, why in problems.items())


def plain(text: str) -> str:
    """Return a text with single spaces."""
    return " ".join(text.split())


def kinds_of(expected: dict[str, Any]) -> list[str]:
    """Return the kinds that are right for an expected proposal, the first one first."""
    return [expected["kind"]] if isinstance(expected["kind"], str) else expected["kind"]


def shares_evidence(quotes: Iterable[str], pieces: Iterable[str]) -> bool:
    """Return whether a quote contains a piece of evidence, or is part of one; white space does not count."""
    said = [quote for quote in map(plain, quotes) if quote]
    return any(piece in quote or quote in piece for piece in map(plain, pieces) for quote in said)


def is_right(proposal: dict[str, Any], expected: dict[str, Any]) -> bool:
    quotes = [each["quote"] for each in proposal["evidence"]]
    return proposal["kind"] in kinds_of(expected) and shares_evidence(quotes, expected["evidence"])


@dataclass(frozen=True, slots=True)
class Judged:
    """Right and wrong proposals and those left out, and expected ones that were found or missed."""

    right: list[dict[str, Any]]
    wrong: list[dict[str, Any]]
    aside: list[dict[str, Any]]
    found: list[dict[str, Any]]
    missed: list[dict[str, Any]]


def judge(proposals: Sequence[dict[str, Any]], histories: Sequence[History]) -> Judged:
    """Compare proposals with what the histories expect. One that only an optional expected one matches is left out."""
    judged = Judged([], [], [], [], [])
    for history in histories:
        names = {f"{OWNER}/{project}" for project in projects_of(history)}
        own = [proposal for proposal in proposals if proposal["project"] in names]
        wanted = [each for each in history["expected"] if not each.get("optional")]
        for proposal in own:
            if any(is_right(proposal, each) for each in wanted):
                judged.right.append(proposal)
            elif any(is_right(proposal, each) for each in history["expected"]):
                judged.aside.append(proposal)
            else:
                judged.wrong.append(proposal)
        for each in wanted:
            is_found = any(is_right(proposal, each) for proposal in own)
            (judged.found if is_found else judged.missed).append(each | {"history": history["name"]})
    known = {f"{OWNER}/{project}" for history in histories for project in projects_of(history)}
    judged.wrong.extend(proposal for proposal in proposals if proposal["project"] not in known)
    return judged


def share(part: int, whole: int) -> str:
    return f"{part / whole:.2f}" if whole else "-"


def report(judged: Judged) -> None:
    """Print a line for each kind, and one over all."""
    columns = ("proposals", "right", "expected", "found", "precision", "recall")
    print(f"{'':14}" + "".join(f"{column:>11}" for column in columns))
    right, wrong = (Counter(each["kind"] for each in some) for some in (judged.right, judged.wrong))
    found, missed = (Counter(kinds_of(each)[0] for each in some) for some in (judged.found, judged.missed))
    for name, kinds in [*((str(kind), [str(kind)]) for kind in Kind), ("all", [str(kind) for kind in Kind])]:
        good, bad, got, lost = (sum(count[kind] for kind in kinds) for count in (right, wrong, found, missed))
        cells = (str(good + bad), str(good), str(got + lost), str(got), share(good, good + bad), share(got, got + lost))
        print(f"{name:14}" + "".join(f"{cell:>11}" for cell in cells))
    print(f"left out, as optional: {len(judged.aside)}")


def show(judged: Judged) -> None:
    """Print each wrong and each missed one with its quotes."""
    for proposal in judged.wrong:
        print(f"\nwrong: {proposal['kind']} in {proposal['project']}: {plain(proposal['title'])}")
        for each in proposal["evidence"]:
            print(f"  | {plain(each['quote'])[:300]}")
    for each in judged.missed:
        print(f"\nmissed: {' or '.join(kinds_of(each))} in {each['history']}: {each['about']}")
        for piece in each["evidence"]:
            print(f"  | {piece}")


def main() -> None:
    """Build, dream, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--part", choices=("dev", "test", "final", "held", "proof"), default="dev", help="which histories"
    )
    parser.add_argument("--home", type=Path, help="a folder that keeps what was ingested for the next run")
    parser.add_argument("--show", action="store_true", help="show each wrong and each missed one")
    args = parser.parse_args()
    histories = histories_of(args.part)
    with tempfile.TemporaryDirectory() as folder:
        place = Place((args.home or Path(folder)).resolve() / args.part)
        if not place.home.exists():
            build(place, histories)
        judged = judge(dream(place), histories)
    report(judged)
    if args.show:
        show(judged)


if __name__ == "__main__":
    main()
