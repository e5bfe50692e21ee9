"""The page of `make bench-memory`, made from result files and the claims of others alone. Pure but for reading them."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory_arms import ARMS, OURS
from memory_scores import Cell, Row, measured, percentile
from memory_sets import SETS, QuestionSet

CLAIMS = Path(__file__).parent / "data/claims.jsonl"
HEAD = """# Benchmarks

Does it find what answers a question, and what does that cost? This page is made by one command from files that hold
every question, in the folder `results` of the repository's benchmarks:

```bash
make bench-memory                                      # what the files lack
make bench-memory ARGS=--fresh                         # everything again; hours on two slow cores
make bench-memory ARGS='--sets sessions --fresh'       # one set again
make bench-memory ARGS=--page-only                     # this page from the files
```

No LLM is asked. The questions and logs are in `../shared`, beside the repository, and in `benchmarks/data`; without
`../shared` only the reversed facts can be asked. Other measurements are in the repository's `benchmarks/README.md`.

## How to read it
- **Arms** search the same passages, those that Anamnesis makes of what is stored, without the summaries that a
  compaction leaves. `grep` instead counts the question's words in each line of the logs: it finds what `rg` would, but
  its time is that of Python. `dense` is the cosine of the same MiniLM vectors; MemPalace and engram embed with the same
  weights. engram runs without its cross-encoder, whose weights are in no package, and without the noise that it adds to
  scores. Both are given passages, not logs: their ways of reading logs are not measured.
- **hit@1, hit@5**: the first result that answers is the first, or among the first five. **recall@10**: share of all
  that answers among the first ten. **MRR**: mean of 1 / rank of the first. In brackets: 95% interval over the questions
  (2,000 bootstrap resamples, seed 31). **Bold**: the best of a column.
- A result answers a question over logs if it shows 80% of the gold quote's words unbroken within 1,200 characters, or
  names at most 12 messages, one of which answers. In LoCoMo it is an evidence turn, elsewhere the text meant.
- **Tokens**: characters / 4 of the first five results, for Anamnesis with their summaries. **ms**: p50 and p95 of a
  question at the client; the arms are asked in turn, in one run, so that other work on the machine slows all of them.
  The load at the end of each run is at the end of this page.
- Anamnesis was tuned with a look at these questions, the others were not, so its lead is smaller on unseen ones. Where
  "held-out half" or "held out" is said it was not; of the prompts and the reversed facts both halves are asked, of the
  second ones both were looked at.
"""

LOSSES = """## Where another arm is better
Of the measures above, by the mean; the intervals overlap where it says so. An arm without a threshold gives something
on related prompts, too, as on all others.
"""

Held = dict[str, dict[str, tuple[dict[str, Any], list[Row]]]]
"""Set -> arm -> what was measured, and its rows."""


def read(folder: Path) -> Held:
    """Read all result files, in the order of the sets and arms."""
    found: Held = {}
    for name in SETS:
        for arm in ARMS:
            path = folder / name / f"{arm}.jsonl"
            if path.exists():
                head, *rows = (json.loads(line) for line in path.read_text(encoding="utf-8").splitlines())
                found.setdefault(name, {})[arm] = head["meta"], rows
    return found


def page_of(folder: Path) -> str:
    """Return the page of the result files in a folder."""
    held = read(folder)
    parts = [HEAD]
    parts += [section(SETS[name], arms) for name, arms in held.items()]
    parts += [losses(held), claims(), provenance(held) if held else "Nothing was measured yet.\n"]
    return "\n".join(part for part in parts if part)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; the first column is text, the others are numbers."""
    lines = [columns, ["---"] + ["--:"] * (len(columns) - 1), *rows]
    return "".join(f"| {' | '.join(row)} |\n" for row in lines)


def cells_of(questions: QuestionSet, arms: dict[str, tuple[dict[str, Any], list[Row]]]) -> dict[str, dict[str, Cell]]:
    """Measure -> arm -> its cell."""
    found: dict[str, dict[str, Cell]] = {}
    for arm, (_, rows) in arms.items():
        for measure, part in columns_of(questions):
            cell = measured([row for row in rows if part in (None, row["kind"])], measure)
            if cell is not None:
                found.setdefault(named(measure, part), {})[arm] = cell
    return found


def columns_of(questions: QuestionSet) -> list[tuple[str, str | None]]:
    """The measures of a set, each over all kinds of question or over one."""
    if questions.gate:
        return [("given", "related"), ("given", "unrelated"), ("hit@5", "related")]
    return [(measure, None) for measure in questions.measures]


GATE = {
    ("given", "related"): "given on related prompts",
    ("given", "unrelated"): "given on unrelated prompts",
    ("hit@5", "related"): "an answer given",
}
"""Names of these columns."""

LOWER = GATE["given", "unrelated"]
"""The only measure of which less is better."""


def named(measure: str, part: str | None) -> str:
    return measure if part is None else GATE[measure, part]


def best_of(name: str, cells: dict[str, Cell]) -> float:
    """The best mean of a column, to three places; an arm that never answers does not count as silent."""
    means = [round(cell.mean, 3) for arm, cell in cells.items() if arm != "nothing"]
    return (min if name == LOWER else max)(means, default=-1.0)


def section(questions: QuestionSet, arms: dict[str, tuple[dict[str, Any], list[Row]]]) -> str:
    """Return the section of one set."""
    cells = cells_of(questions, arms)
    bests = {name: best_of(name, column) for name, column in cells.items()}
    lines, missing = [], []
    for arm, (meta, rows) in arms.items():
        title = ARMS[arm][0]
        if "reason" in meta:
            missing.append(f"{title} could not be asked: {meta['reason']}\n")
            continue
        shown = [
            column[arm].text(best=arm != "nothing" and round(column[arm].mean, 3) == bests[name])
            for name, column in cells.items()
        ]
        times = sorted(row["ms"] for row in rows)
        tokens = tokens_of(rows)
        lines.append(
            [title, *shown, f"{tokens:,.0f}", f"{percentile(times, 0.5):,.1f}", f"{percentile(times, 0.95):,.1f}"]
        )
    some = next((each for each in arms.values() if each[1]), None)
    if some is None:
        return "\n".join([f"## {questions.title}", *missing])
    counts = sorted({len(rows) for _, rows in arms.values() if rows})
    limited = any("--limit" in meta["command"] for meta, _ in arms.values())
    asked = f"{'The first ' if limited else ''}{' or '.join(map(str, counts))}"
    told = [
        f"## {questions.title}\n{asked} questions over {some[0]['passages']:,} passages (set `{questions.name}`).\n"
    ]
    if len({meta["commit"] for meta, rows in arms.values() if rows}) > 1:
        missing.append("The arms were not all asked in one run: see [runs](#runs).\n")
    if left := [ARMS[arm][0] for arm in ARMS if arm not in arms]:
        missing.append(f"Not asked: {', '.join(left)}.\n")
    told += [table(["", *cells, "tokens", "ms p50", "ms p95"], lines), *missing, by_kind(questions, arms)]
    return "\n".join(part for part in told if part)


def tokens_of(rows: Sequence[Row]) -> float:
    """The mean of tokens an answer."""
    return sum(row["tokens"] for row in rows) / len(rows)


def median_ms(rows: Sequence[Row]) -> float:
    """The median time of a question."""
    return percentile(sorted(row["ms"] for row in rows), 0.5)


def by_kind(questions: QuestionSet, arms: dict[str, tuple[dict[str, Any], list[Row]]]) -> str:
    """Return hit@5 of each kind of question, if there are several."""
    rows_of = {
        arm: [row for row in rows if row["ranks"]] for arm, (_, rows) in arms.items() if arm != "nothing" and rows
    }
    kinds = list(dict.fromkeys(row["kind"] for rows in rows_of.values() for row in rows))
    if questions.gate or len(kinds) < 2:
        return ""
    lines = []
    for arm, rows in rows_of.items():
        cells = [measured([row for row in rows if row["kind"] == kind], "hit@5") for kind in kinds]
        lines.append([ARMS[arm][0], *("-" if cell is None else f"{cell.mean:.3f}" for cell in cells)])
    counts = [max(sum(row["kind"] == kind for row in rows) for rows in rows_of.values()) for kind in kinds]
    return "hit@5 by kind of question:\n\n" + table(
        ["", *(f"{kind}, {count}" for kind, count in zip(kinds, counts, strict=True))], lines
    )


def losses(held: Held) -> str:
    """Return where Anamnesis is not the best, worst first."""
    lines = []
    for name, arms in held.items():
        for measure, cells in cells_of(SETS[name], arms).items():
            if OURS not in cells:
                continue
            ours, sign = cells[OURS], -1 if measure == LOWER else 1
            for arm, cell in cells.items():
                gap = sign * (cell.mean - ours.mean)
                if arm != "nothing" and round(gap, 3) > 0:
                    sure = "the intervals overlap" if cell.low <= ours.high and ours.low <= cell.high else "apart"
                    lines.append(
                        (gap, [SETS[name].title, measure, ARMS[arm][0], f"{ours.mean:.3f}", f"{cell.mean:.3f}", sure])
                    )
    if not held:
        return ""
    rows = [row for _, row in sorted(lines, key=lambda each: -each[0])]
    shown = table(["set", "measure", "better", "Anamnesis", "it", ""], rows) if rows else "In no column.\n"
    return LOSSES + "\n" + shown + "\n" + costs(held)


def costs(held: Held) -> str:
    """Return which arm is cheapest in each set, beside Anamnesis."""
    told = []
    for name, value in (("Fewest tokens", tokens_of), ("Fastest", median_ms)):
        found = []
        for each, arms in held.items():
            values = {arm: value(rows) for arm, (_, rows) in arms.items() if rows and arm != "nothing"}
            if OURS in values and (best := min(values, key=lambda arm: values[arm])) != OURS:
                found.append(f"{each} {ARMS[best][0]} {values[best]:,.1f} (Anamnesis {values[OURS]:,.1f})")
        told.append(f"{name}: {'; '.join(found) or 'Anamnesis in every set'}.\n")
    return "\n".join(told).replace("Fastest:", "Fastest, ms at the median:")


def claims() -> str:
    """Return what others say of themselves, each with its source."""
    if not CLAIMS.exists():
        return ""
    rows = [json.loads(line) for line in CLAIMS.read_text(encoding="utf-8").splitlines()]
    lines = [
        [row["system"], row["benchmark"], row["claim"], row["model"], row["judge"], f"[source]({row['source']})"]
        for row in rows
    ]
    return (
        "## What others report of themselves\n"
        "Claims, not measured here, and not comparable with each other or with the tables above: recall of sessions\n"
        "is not the accuracy of an LLM's answers, and both answers and verdicts change with the model.\n"
        "`?`: not found there.\n"
        "`benchmarks/longmemeval.py` and `benchmarks/beam.py` measure the recall of Anamnesis where the data is.\n\n"
        + table(["system", "benchmark", "claim", "model that answers", "judge", ""], lines).replace("--:", "---")
    )


def provenance(held: Held) -> str:
    """Return when, where and with what the tables were measured, one line for each run."""
    runs: dict[tuple[str, ...], list[str]] = {}
    versions: dict[str, str] = {}
    for name, arms in held.items():
        for meta, _ in arms.values():
            key = (
                meta["date"][:10],
                meta["commit"],
                meta["machine"],
                meta["python"],
                str(meta["load"]),
                meta["command"],
            )
            runs.setdefault(key, [])
            if name not in runs[key]:
                runs[key].append(name)
            versions |= meta.get("versions", {})
    lines = [[", ".join(names), *key[:5], f"`{key[5]}`"] for key, names in runs.items()]
    told = ", ".join(f"{name} {value}" for name, value in versions.items())
    return f"## Runs\nVersions: {told}. `+` after a commit: with changes.\n\n" + table(
        ["sets", "date", "commit", "machine", "Python", "load", "command"], lines
    ).replace("--:", "---")
