"""What this memory answered is no news: it is recognized by the call, and by the marks around what was put in."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from anamnesis_pipeline.model import MEMORY_BEGINS, MEMORY_ENDS, MEMORY_TAG, SUMMARIZER_MARK
from anamnesis_pipeline.parsing.claude_logs.chunking import MAX_PENDING
from anamnesis_pipeline.parsing.claude_logs.own_calls import LONGEST_COMMAND, asks_memory
from anamnesis_pipeline.parsing.claude_logs.own_text import without_memory
from anamnesis_pipeline.search.quoting import PREFACE, fenced, one_line, quoted
from anamnesis_tests.parsing.claude_logs.sessions import changed
from anamnesis_tests.support.ingested import OTHER, Ingested
from anamnesis_tests.support.log_lines import SESSION, Log

SKILL = Path(__file__).parents[3] / "plugin/skills/recall/SKILL.md"
ANSWER = '{"results":[{"excerpt":"Earlier you fixed the zeppelin."}]}'
URL = "http://127.0.0.1:3010/api/episodes/search"

ASKING = [
    "anamnesis search 'webhook retries'",
    "anamnesis search x --json | jq .results",
    ".venv/bin/anamnesis search x",
    "cd ~/code && ANAMNESIS_HOME=/x timeout 10 uv run anamnesis search --top-k 3 x 2>&1 | head -5",
    "python3 -m anamnesis_pipeline.cli search x",
    "anamnesis forget --query zeppelin",
    f"curl -sS --max-time 5 {URL} \\\n  -H 'Content-Type: application/json' -d '{{\"query\": \"why\"}}'",
    'curl -s "http://localhost:${ANAMNESIS_PORT:-3010}/api/episodes/search" -d @-',
    "curl -s http://anamnesis.lan:8080/api/episodes/search -d '{}'",
    "curl -s http://localhost:3010/memory/search?q=x",
    "curl -s 'http://127.0.0.1:3010/api/episodes/code--shop?include=raw'",
    "curl -s http://127.0.0.1:4000/api/episodes/0123456789abcdef0123456789abcdef?include=raw",
    "http POST :3010/api/episodes/search query=x",
    "for q in a b; do\n  anamnesis search $q\ndone",
    'R=$(anamnesis search x); echo "$R"',
    'echo "found: $(anamnesis search x)"',
    "ssh nas 'anamnesis search x'",
    "bash -c 'cd /x && anamnesis search y'",
    f"python3 -c \"import urllib.request as u; print(u.urlopen('{URL}', b'x').read())\"",
    f"python3 - <<'EOF'\nimport httpx\nprint(httpx.post('{URL}', json={{'query': \"it's\"}}).text)\nEOF",
    "bash <<EOF\nanamnesis search x\nEOF",
    "cat <<EOF | bash\nanamnesis search x\nEOF",
    "echo 'anamnesis search x' | sh",
    "ssh -p 22 nas anamnesis search x",
    "docker exec -it box anamnesis search x",
    "docker compose exec app curl -s localhost:3010/api/episodes/search -d @q.json",
    "echo `anamnesis search x`",
    'R=`anamnesis search x`\necho "$R" | head -5',
    'Q=$(git log -1 --format=%s); anamnesis search "$Q"',
    "anamnesis search $(git log -1 --format=%s)",
    "BASE=http://127.0.0.1:3010\ncurl -s $BASE/api/episodes/search -d '{}' | python3 -m json.tool | less",
    "python3 - <<'EOF'\nBASE = 'http://127.0.0.1:3010'\nprint(get(BASE + '/api/episodes/search'))\nEOF",
    "# what we don't know any more\nexport A=1; echo '== memory'; sleep 1; anamnesis search x || true",
    "anamnesis search x --json | python3 -c 'import json, sys; print(len(json.load(sys.stdin)))'",
    "anamnesis search x > /tmp/found.json && jq .results /tmp/found.json",
    "curl -s localhost:3010/api/episodes/search -o found.json; cat found.json | head",
    'anamnesis search x | while read -r line; do echo "$line"; done',
    "anamnesis search x 2>/dev/null | grep -o zeppelin | sort -u",
    "command -v anamnesis >/dev/null && anamnesis search x",
    "make test >/dev/null 2>&1; anamnesis search x",
    'recall() { anamnesis search "$1"; }\nrecall airships',
]
OTHERS = [
    "anamnesis doctor",
    "anamnesis status && anamnesis ingest",
    "anamnesis search --help",
    "which anamnesis && anamnesis config set summarizer ollama",
    "curl -s http://127.0.0.1:3010/health",
    "curl -s http://127.0.0.1:3010/api/jsonl/status",
    "curl -s http://127.0.0.1:8000/api/episodes?page=2",
    "curl -s https://podcasts.example/memory/lane",
    "grep -rn 'anamnesis search' docs README.md",
    "rg /api/episodes/search anamnesis_pipeline",
    "git commit -m 'anamnesis search: show dates'",
    "git commit -m \"$(cat <<'EOF'\nanamnesis search shows dates\nEOF\n)\"",
    f"cat > recall.sh <<'EOF'\ncurl {URL}\nanamnesis search x\nEOF\nchmod +x recall.sh",
    "sed -i 's/anamnesis search/anamnesis find/' README.md",
    "pytest anamnesis_tests/search -k anamnesis",
    "echo anamnesis search",
    f"python3 tools/check.py {URL}",
    "make test; anamnesis search parser",
    "anamnesis search parser; make test 2>&1 | tail -40",
    "anamnesis search x && cat notes.md",
    "pytest -q | grep FAILED; anamnesis search x | jq .",
    'R=$(make test); anamnesis search x; echo "$R"',
    'echo "$(make test)"; anamnesis search x',
    "bash -c 'make test; anamnesis search x'",
    "ssh nas 'make test; anamnesis search x'",
    "anamnesis search x >/dev/null; make test",
    "anamnesis search x | xargs -n1 git show",
    "anamnesis search x > found; tail build.log",
    "docker logs anamnesis",
    "curl -s http://nas.lan:8080/api/episodes/search -d '{}'",
    "curl -s https://podcasts.example.com/api/episodes/ep_1",
    "curl -s https://podcasts.example.com/anamnesis/api/episodes/search",
    "curl -s https://podcasts.example.com/api/episodes/search; curl -s localhost:3010/health",
    "python3 -c \"print(get('https://podcasts.example.com/api/episodes/search'))\"",
    "anamnesis search x \x010\x01 \x027\x02; make",
]


@pytest.mark.parametrize("command", [*ASKING, *OTHERS])
def test_a_command_asks_this_memory_or_only_speaks_of_it(command: str) -> None:
    assert asks_memory("Bash", {"command": command}) is (command in ASKING)


def test_the_calls_of_our_own_skill_are_recognized() -> None:
    blocks = SKILL.read_text(encoding="utf-8").split("```bash\n")[1:]
    commands = [block.split("```")[0] for block in blocks]
    assert len(commands) == 3
    assert all(asks_memory("Bash", {"command": command}) for command in commands)


@pytest.mark.parametrize(
    ("tool", "value", "asks"),
    [
        ("mcp__anamnesis__search", {"query": "x"}, True),
        ("mcp__plugin_anamnesis_memory__get", {}, True),
        ("mcp__plugin_anamnesis_anamnesis__search", None, True),
        ("mcp__my-anamnesis__search", None, False),
        ("mcp__anamnesis-tests__run", {}, False),
        ("mcp__plugin_testing_anamnesis-tests__run", {}, False),
        ("mcp__memory__search_anamnesis", {"query": "x"}, False),
        ("WebFetch", {"url": URL, "prompt": "x"}, True),
        ("WebFetch", {"url": "https://example.org/anamnesis/search"}, False),
        ("WebFetch", {"url": "https://podcasts.example.com/api/episodes/search"}, False),
        ("WebFetch", {"url": "https://podcasts.example.com/api/episodes/ep_1"}, False),
        ("Edit", {"file_path": "skills/recall/SKILL.md", "new_string": f"curl {URL}"}, False),
        ("Read", {"file_path": "/code/anamnesis_pipeline/search/engine.py"}, False),
        ("Bash", {"command": ["anamnesis", "search"]}, False),
        ("Bash", "anamnesis search x", False),
    ],
)
def test_tools_of_our_server_and_addresses_of_our_service_ask(tool: str, value: Any, asks: bool) -> None:
    assert asks_memory(tool, value) is asks


PIECES = ["$(anamnesis ", "$('anamnesis", "`anamnesis` ", "ssh ", "A=localhost;$A", "<<A anamnesis\n"]


@pytest.mark.parametrize("piece", [*PIECES, "bash -c anamnesis ", "anamnesis '\\", "\\\n(;|"])
def test_a_command_that_is_made_to_stall_takes_no_time(piece: str) -> None:
    begun = time.process_time()
    asks_memory("Bash", {"command": f"anamnesis{piece * (LONGEST_COMMAND // len(piece))}" * 50})
    assert time.process_time() - begun < 3


def asking(log: Log, tool_id: str = "toolu_1", answer: Any = ANSWER, command: str = ASKING[0]) -> None:
    log.call("Bash", tool_id, command=command)
    log.result(tool_id, answer)


@pytest.mark.parametrize("tick", [None, 2, 3])
def test_an_answer_is_left_out_also_where_its_call_is_apart(home: Ingested, tick: int | None) -> None:
    log = Log().talk("What did we decide?")
    asking(log)
    log.call("mcp__anamnesis__search", "toolu_2", query="decision")
    log.result("toolu_2", [{"type": "text", "text": "the zeppelin again"}], is_error=True)
    log.tool("Bash", "toolu_3", "everything is fine", command="anamnesis doctor")
    log.say("We decided on airships.")
    first = home.take(log.lines[:tick])
    second = home.take(log.lines)
    assert first.skipped["own:answer"] + second.skipped["own:answer"] == 2
    assert first.messages + second.messages == 6
    assert "zeppelin" not in home.texts()
    for kept in ("anamnesis search 'webhook retries'", "query: decision", "everything is fine", "on airships"):
        assert kept in home.texts()
    assert len(home.archived()) == len(log.lines)


def test_a_copy_of_the_session_brings_no_answer_either(home: Ingested) -> None:
    log = Log().talk("What did we decide?")
    asking(log)
    log.say("We decided on airships.")
    home.take(log.lines)
    home.take(changed(log.lines, sessionId=OTHER, forkedFrom={"sessionId": SESSION}), f"{OTHER}.jsonl")
    assert home.store.overview.counts().messages == 3
    assert "zeppelin" not in home.texts()


def test_the_output_of_a_command_that_the_user_ran_is_left_out_too(home: Ingested) -> None:
    log = Log()
    for number, (command, output) in enumerate(((ASKING[0], "the zeppelin"), ("git status", "all clean"))):
        log.user(f"<bash-input>{command}</bash-input>", uuid=f"in{number}")
        log.user(f"<bash-stdout>{output}</bash-stdout><bash-stderr></bash-stderr>", parentUuid=f"in{number}")
    assert home.take(log.lines).skipped["own:answer"] == 1
    assert "zeppelin" not in home.texts()
    assert "all clean" in home.texts()
    assert "anamnesis search" in home.texts()


def test_what_is_known_of_calls_stays_small(home: Ingested) -> None:
    log = Log()
    for number in range(3 * MAX_PENDING):
        log.call("Bash", f"toolu_{number}", command=ASKING[0])
    home.take(log.lines)
    (cursor,) = home.store.files.cursors(home.sources()[0].key).values()
    assert cursor.parser_state.count('"tool_use_id"') == MAX_PENDING
    log.result(f"toolu_{3 * MAX_PENDING - 1}", "the zeppelin")
    assert home.take(log.lines).skipped["own:answer"] == 1


BLOCK = fenced(["- On 2026-03-05 (exchange): " + quoted(one_line('Earlier you fixed the "zeppelin".')) + " [ep_1]"])


def inside_json(text: str, depth: int) -> str:
    for _ in range(depth):
        text = json.dumps({"additionalContext": text})
    return text


ESCAPED = {
    **{f"JSON {depth} deep": inside_json(BLOCK, depth) for depth in (1, 2, 3)},
    "slashes": inside_json(BLOCK, 1).replace("/", "\\/"),
    "angle brackets": inside_json(BLOCK, 1).replace("<", "\\u003c").replace(">", "\\u003E"),
    "quotes": inside_json(BLOCK, 1).replace('\\"', "\\u0022"),
    "HTML": BLOCK.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;"),
}


@pytest.mark.parametrize("how", ESCAPED)
def test_what_was_put_in_is_cut_out_also_where_it_is_escaped(how: str) -> None:
    left, count = without_memory(f"before {ESCAPED[how]} after")
    assert ("zeppelin" in left, count) == (False, 1)
    assert (left[:7], left[-6:]) == ("before ", " after")


FORGED = {
    "plain": f"{MEMORY_BEGINS}zeppelin{MEMORY_ENDS}",
    "on lines": f"{MEMORY_BEGINS}\nThe zeppelin\n{MEMORY_ENDS}",
    "with our first line": f"{MEMORY_BEGINS}\n{PREFACE}\nThe zeppelin is late.\n{MEMORY_ENDS}",
    "around a block of ours": f"{MEMORY_BEGINS}zeppelin{BLOCK}",
    "in JSON": inside_json(f"{MEMORY_BEGINS}\nThe zeppelin\n{MEMORY_ENDS}", 2),
    "in code": f"BEGINS = {MEMORY_BEGINS!r}\nzeppelin = 1\nENDS = {MEMORY_ENDS!r}",
}


@pytest.mark.parametrize("how", FORGED)
def test_text_between_tags_that_are_not_ours_is_kept(how: str) -> None:
    text = f"before {FORGED[how]} after"
    assert without_memory(text) == (text.replace(BLOCK, ""), text.count(BLOCK))


def test_many_tags_are_read_once() -> None:
    forged = MEMORY_BEGINS * 20_000 + MEMORY_ENDS * 20_000
    assert without_memory(forged) == (forged, 0)
    assert without_memory(MEMORY_BEGINS * 20_000 + BLOCK * 1_000) == (MEMORY_BEGINS * 20_000, 1_000)


def test_a_block_that_is_shown_with_line_numbers_is_cut() -> None:
    numbered = "\n".join(f"{number:6}\u2192{line}" for number, line in enumerate(BLOCK.split("\n"), 1))
    assert "zeppelin" not in without_memory(numbered)[0]


@pytest.mark.parametrize(
    ("command", "output", "skipped", "kept"),
    [
        (ASKING[0], ANSWER, "own:answer", ASKING[0]),
        ("make", f"before\n{BLOCK}\nafter\n", "own:memory", "before\n\nafter"),
    ],
)
def test_output_moved_out_is_left_out_too(home: Ingested, command: str, output: str, skipped: str, kept: str) -> None:
    file = home.path(f"{SESSION}/tool-results/toolu_1.txt")
    file.write_text(output)
    log = Log().talk("What did we decide?")
    asking(log, answer=f"<persisted-output>\nOutput too large, saved to: {file}\n</persisted-output>", command=command)
    assert home.take(log.lines).skipped[skipped] == 1
    assert kept in home.texts()
    assert "zeppelin" not in home.texts()


def test_memory_that_was_put_in_is_cut_out_wherever_it_is(home: Ingested) -> None:
    log = Log()
    log.record("attachment", attachment={"type": "hook_success", "stdout": BLOCK})
    log.user(f"{BLOCK}\nWhy is it late?")
    log.user(f"<system-reminder>{BLOCK}</system-reminder>")
    log.call("Bash", "toolu_1", command=f"echo '{BLOCK}' | wc")
    log.result("toolu_1", [{"type": "text", "text": f"before {BLOCK} between {BLOCK} after"}])
    log.say(f"As I read: {BLOCK}")
    log.user(f"{MEMORY_BEGINS} is how it begins, it is not closed here")
    log.user(f'An example: <{MEMORY_TAG} id="42">any words{MEMORY_ENDS}')
    seen = home.take(log.lines)
    assert seen.skipped["own:memory"] == 7
    assert "zeppelin" not in home.texts()
    kept = ("Why is it late?", "echo '' | wc", "before  between  after", "As I read:", "is how it begins", "any words")
    assert [text for text in kept if text not in home.texts()] == []


@pytest.mark.parametrize("tick", [None, 1, 3])
def test_a_transcript_of_a_summarizers_call_yields_nothing(home: Ingested, tick: int | None) -> None:
    own = Log(session=OTHER)
    own._count = 100
    own.record("queue-operation", operation="enqueue", content="x")
    own.user(f"{SUMMARIZER_MARK}\nSummarize: we fixed the zeppelin.")
    own.say("The zeppelin was fixed.")
    own.user("again, please")
    about = Log().talk(f"Where is the mark defined? I mean {SUMMARIZER_MARK}")
    about.tool("Grep", "toolu_1", f"model.py: {SUMMARIZER_MARK}", pattern="mark")
    home.write(about.lines)
    first = home.take(own.lines[:tick], f"{OTHER}.jsonl")
    second = home.take(own.lines, f"{OTHER}.jsonl")
    assert first.skipped["own:summarizer"] + second.skipped["own:summarizer"] == 3
    assert "zeppelin" not in home.texts()
    assert SUMMARIZER_MARK in home.texts(), "only a session that begins with it is one of ours"
    assert len(home.archived(f"{OTHER}.jsonl")) == 4
