"""`make bench-memory`: how well is something found, by this memory, by plain search and by other memories? One page.

    python benchmarks/memory.py [--sets NAME ...] [--arms NAME ...] [--limit N] [--fresh] [--page-only]

Asks each question of every arm, one arm after another in a turning order, and writes a file of JSON lines for each set
and arm under benchmarks/results: first what was measured, then a row for each question. Files that hold the questions
asked for are kept, unless --fresh. Then it writes docs/benchmarks.md from these files alone. Vectors, the peers'
virtual environment, and homes stay in --work; a home is made again when the code that reads logs has changed. All sets
but the reversals need ../shared.
"""

import argparse
import functools
import hashlib
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from claude_qa import copy_haystack, index
from memory_arms import ARMS, Arm, Place, UnavailableError, opened, passages_of, post_all
from memory_page import page_of
from memory_scores import Row, ranks_of
from memory_sets import SETS, Corpus, Question, QuestionSet, hits, widened
from service import PAGE, RESULTS, ROOT, commit, need_shared, sidecar

from anamnesis_pipeline.services.wiring import open_store
from anamnesis_pipeline.settings import Settings

WORK = ROOT / ".bench-memory"
WARM_UP = Question("warm-up", "hello, how are you?", "", ())
READ = 5
"""Results whose tokens count."""
READING = ("sources", "parsing", "pipeline", "embeddings")
"""Packages that make passages and vectors of logs."""


def main() -> None:
    """Ask what is missing, then write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[*SETS], help="default: all")
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=[*ARMS], help="default: all")
    parser.add_argument("--limit", type=int, help="only the first N questions of each set")
    parser.add_argument("--fresh", action="store_true", help="ask again what result files hold already")
    parser.add_argument("--page-only", action="store_true", help="only write the page")
    parser.add_argument("--work", type=Path, default=WORK, help="default: .bench-memory")
    parser.add_argument("--results", type=Path, default=RESULTS, help="default: benchmarks/results")
    parser.add_argument("--page", type=Path, default=PAGE, help="default: docs/benchmarks.md")
    args = parser.parse_args()
    if not args.page_only:
        commit()  # of the code that is measured, whatever changes meanwhile
        corpora = list(dict.fromkeys(SETS[name].corpus for name in args.sets))
        if any(corpus.needs_shared for corpus in corpora):
            need_shared()
        for corpus in corpora:
            measure(corpus, [SETS[name] for name in args.sets if SETS[name].corpus == corpus], args)
    args.page.write_text(page_of(args.results), encoding="utf-8")
    print(f"wrote {args.page}")


def measure(corpus: Corpus, sets: Sequence[QuestionSet], args: argparse.Namespace) -> None:
    """Ask the questions of all sets over a corpus that result files do not hold yet."""
    asked = {each.name: each.questions()[: args.limit] for each in sets}
    missing = {
        each.name: [
            arm
            for arm in args.arms
            if args.fresh or not held(args.results / each.name / f"{arm}.jsonl", asked[each.name])
        ]
        for each in sets
    }
    for name, wanted in missing.items():
        if kept := [arm for arm in args.arms if arm not in wanted]:
            print(f"{name}: kept {', '.join(kept)}; --fresh asks again", flush=True)
    arms = [arm for arm in args.arms if any(arm in wanted for wanted in missing.values())]
    if not arms:
        return
    questions = [question for each in asked.values() for question in each]
    with place_of(corpus, questions, args.work.resolve()) as place, ExitStack() as stack:
        scopes = {question.scope for question in questions}
        ready = {}
        for name in arms:
            started = time.monotonic()
            ready[name] = stack.enter_context(opened(name, place, scopes))
            print(f"{corpus.name}: {name} opened in {time.monotonic() - started:.0f} s", flush=True)
        for each in sets:
            ask_all(each, asked[each.name], {name: ready[name] for name in missing[each.name]}, place, args)


def held(path: Path, questions: Sequence[Question]) -> bool:
    """Return whether a result file has a row for each of these questions."""
    if not path.exists():
        return False
    _, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
    return {question.id for question in questions} <= {row["id"] for row in rows}


@contextmanager
def place_of(corpus: Corpus, questions: Sequence[Question], work: Path) -> Iterator[Place]:
    """Serve a copy of a home that holds the corpus's logs, indexed once, and its posts."""
    work.mkdir(parents=True, exist_ok=True)
    logs = None
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder) / "home"
        if corpus.logs:
            kept = work / ("-".join(corpus.logs) or "logs")
            logs, indexed = kept / "logs", kept / "indexed"
            if not indexed.exists() or indexed.read_text(encoding="ascii") != reading():
                shutil.rmtree(kept, ignore_errors=True)
                copy_haystack(logs, corpus.logs)
                index(Settings(home=kept / "home", log_roots=(logs,)))
                indexed.write_text(reading(), encoding="ascii")
            shutil.copytree(kept / "home", home)
        posts = corpus.posts(questions)
        settings = Settings(home=home)
        with sidecar(home) as base:
            started = time.monotonic()
            post_all(base, posts)
            print(f"{corpus.name}: {len(posts)} posts stored in {time.monotonic() - started:.0f} s", flush=True)
            with closing(open_store(settings)) as store:
                yield Place(base, store, settings, passages_of(store), logs, posts, work)


def ask_all(
    questions: QuestionSet,
    asked: Sequence[Question],
    arms: dict[str, Arm | UnavailableError],
    place: Place,
    args: argparse.Namespace,
) -> None:
    """Ask each question of every arm and write the result files."""
    rows: dict[str, list[Row]] = {name: [] for name in arms}
    out = {name: str(arm) for name, arm in arms.items() if isinstance(arm, UnavailableError)}
    if questions.gate:
        episodes: dict[str, set[str]] = {}
        for text in place.passages:
            episodes.setdefault(text.episode, set()).update(text.message_ids)
        asked = [widened(question, episodes.values()) for question in asked]
    order = [name for name in arms if name not in out]
    for number, question in enumerate([WARM_UP, *asked]):
        turn = number % max(len(order), 1)
        for name in order[turn:] + order[:turn]:
            arm = arms[name]
            if name in out or isinstance(arm, UnavailableError):
                continue
            try:
                row = ask(arm, question if number else on_scope(asked), questions.gate)
            except UnavailableError as why:
                out[name] = str(why)
                continue
            if number:
                rows[name].append(row)
    for name, arm in arms.items():
        meta = facts(args, questions, sorted(arms)) | {
            "arm": name,
            "set": questions.name,
            "passages": len(place.passages),
        }
        meta |= {"reason": out[name]} if name in out else {"versions": getattr(arm, "versions", {})}
        write(args.results / questions.name / f"{name}.jsonl", meta, [] if name in out else rows[name])
    print(f"{questions.name}: {len(asked)} questions of {', '.join(order)}", flush=True)


def on_scope(asked: Sequence[Question]) -> Question:
    """The warm-up, in the scope of the first question."""
    return Question(WARM_UP.id, WARM_UP.text, "", (), scope=asked[0].scope if asked else None)


def ask(arm: Arm, question: Question, gate: bool) -> Row:
    """Ask one question of one arm."""
    started = time.perf_counter()
    results = arm.ask(question, gate)
    took = (time.perf_counter() - started) * 1_000
    read = sum(len(result.get("summary") or "") + len(result.get("excerpt") or "") for result in results[:READ])
    row: Row = {
        "id": question.id,
        "kind": question.kind,
        "ranks": ranks_of(results, question.golds, hits),
        "results": len(results),
        "tokens": round(read / 4),
        "ms": round(took, 2),
    }
    if question.older is not None:
        row["older"] = ranks_of(results, [question.older], hits)[0]
    return row


def write(path: Path, meta: dict[str, Any], rows: Sequence[Row]) -> None:
    """Write a result file: what was measured, then a row a line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [{"meta": meta}, *rows]
    path.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")


def facts(args: argparse.Namespace, questions: QuestionSet, beside: Sequence[str]) -> dict[str, Any]:
    """Return when, where and with what it was measured."""
    words = ["--sets", questions.name, "--arms", *beside, *(["--limit", str(args.limit)] if args.limit else [])]
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": commit(),
        "command": f"make bench-memory ARGS='{' '.join(words)}'",
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "load": round(os.getloadavg()[0], 1),
        "python": platform.python_version(),
    }


@functools.cache
def reading() -> str:
    """Return a hash of the code that makes passages and vectors of logs."""
    package = ROOT / "anamnesis_pipeline"
    files = sorted(path for name in READING for path in (package / name).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()


def processor() -> str:
    """Return the processor's name."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


if __name__ == "__main__":
    sys.exit(main())
