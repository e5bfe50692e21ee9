"""What is observed in a session: errors with their fix, what a person says, and commands that worked."""

from collections.abc import Iterable
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anamnesis_pipeline.knowledge.observing import observations_of_session, steps_of
from anamnesis_pipeline.knowledge.utterances import Utterance
from anamnesis_pipeline.model import SegmentKind, content_id
from anamnesis_pipeline.parsing.claude_logs.message_keys import result_key
from anamnesis_pipeline.store.knowledge_model import Observation, Signal

NOW = datetime(2026, 3, 1, tzinfo=UTC)
REFUSED = "psycopg2.OperationalError: connection to localhost, port 5433 failed: Connection refused"
WHO = {"user": SegmentKind.PROMPT, "claude": SegmentKind.STATEMENT, "agent": SegmentKind.AGENT_PROMPT}


def session(*turns: tuple[str, str]) -> list[Utterance]:
    """Utterances of a session: (`user` | `claude`, text), or (a script, its output; an error begins with `!`)."""
    said: list[Utterance] = []

    def add(key: str, kind: SegmentKind, text: str) -> None:
        said.append(Utterance("episode", "shop", "session", f"m{len(said)}", key, kind, text, NOW))

    for number, (who, text) in enumerate(turns):
        if who in WHO:
            add(f"u:{number}", WHO[who], text)
            continue
        call = f"toolu_{number}"
        add(f"u:{content_id('tool_use', call)}", SegmentKind.TOOL_INPUT, f"Bash\ncommand: {who}")
        kind = SegmentKind.TOOL_ERROR if text.startswith("!") else SegmentKind.TOOL_RESULT
        add(result_key(call, text), kind, text.removeprefix("!"))
    return said


def of(signal: Signal, found: Iterable[Observation]) -> list[tuple[str, str]]:
    return [(each.quote, each.answer) for each in found if each.signal is signal]


def test_error_is_observed_with_the_command_that_fixed_it() -> None:
    found = observations_of_session(
        session(
            ("alembic upgrade head", f"!{REFUSED}"),
            ("docker compose up -d db", "Started"),
            ("alembic upgrade head", "done"),
        )
    )
    assert of(Signal.ERROR, found) == [(REFUSED, "docker compose up -d db")]


def test_error_is_observed_with_what_claude_says_fixed_it() -> None:
    fix = "The fix was to start the container on port 5433 first."
    found = observations_of_session(session(("alembic upgrade head", f"!{REFUSED}"), ("claude", f"Found it. {fix}")))
    assert of(Signal.ERROR, found) == [(REFUSED, fix)]


def test_error_that_nothing_fixed_has_no_answer() -> None:
    found = observations_of_session(session(("alembic upgrade head", f"!{REFUSED}"), ("claude", "Let me look.")))
    assert of(Signal.ERROR, found) == [(REFUSED, "")]


def test_error_that_a_person_shows_is_observed() -> None:
    found = observations_of_session(session(("user", f"the nightly job is red\n\n{REFUSED}"), ("user", "thanks")))
    assert of(Signal.ERROR, found) == [(REFUSED, "")]


@pytest.mark.parametrize(
    "told",
    [
        "Fixed: the container listens on port 5433 before the migration.",
        "`docker compose up` was enough, nothing else had to change.",
        "Ursache: der Container lief nicht, der Dienst startet ihn jetzt.",
        "Como en agosto: hay que levantar el contenedor primero.",
        "Comme en mai : le conteneur doit tourner avant la migration.",
    ],
)
def test_fix_is_told_in_many_ways(told: str) -> None:
    found = observations_of_session(session(("alembic upgrade head", f"!{REFUSED}"), ("claude", told)))
    assert of(Signal.ERROR, found) == [(REFUSED, told)]


def test_first_word_after_the_act_is_the_fix() -> None:
    turns = (
        ("user", f"look\n{REFUSED}"),
        ("docker compose up -d db", "Started"),
        ("claude", "Up. The database was off."),
    )
    found = observations_of_session(session(*turns, ("user", "great, next thing")))
    assert of(Signal.ERROR, found) == [(REFUSED, "The database was off.")]
    found = observations_of_session(session(*turns, ("user", "no, it still fails")))
    assert of(Signal.ERROR, found) == [(REFUSED, "")]


def test_error_in_a_text_that_was_only_read_is_not_observed() -> None:
    found = observations_of_session(session(("cat notes.txt", REFUSED), ("grep -rn Error logs", REFUSED)))
    assert of(Signal.ERROR, found) == []


@pytest.mark.parametrize(
    ("text", "signal"),
    [
        ("Remember that the staging host is stg-2.example.com.", Signal.FACT),
        ("We decided to stay on Postgres 16 because of JSON_TABLE.", Signal.DECISION),
        ("Always run the linter before you commit.", Signal.PREFERENCE),
        ("No, don't mock the database in these tests.", Signal.CORRECTION),
        ("Note for the future: the certificate of mx2 is renewed by hand.", Signal.FACT),
        ("Et retiens bien ceci : les fichiers RAW ne quittent jamais le NAS.", Signal.FACT),
        ("For your information, customer ids are UUIDv7.", Signal.FACT),
        ("The staging database lives on db3.internal, port 5433.", Signal.FACT),
        ("Der Lizenzserver läuft auf lic01 und lauscht auf Port 27000.", Signal.FACT),
        ("Les sauvegardes sont stockées dans s3://acme-backup-prod.", Signal.FACT),
        ("Releases go out every second Tuesday morning.", Signal.FACT),
        ("Only Marta and Jonas have access to the production vault.", Signal.FACT),
        ("The API rate limit is 600 requests per minute per key.", Signal.FACT),
        ("We are switching the queue to NATS, because RabbitMQ kept losing its state.", Signal.DECISION),
        ("I've settled on SQLite for the desktop client: no server to install.", Signal.DECISION),
        ("D'accord, on passe à Imagick plutôt que GD, parce que GD perd les profils ICC.", Signal.DECISION),
        ("Wir nehmen Keycloak statt Auth0, weil die Daten in der EU bleiben müssen.", Signal.DECISION),
        ("Take the search out and go with alpha-beta, because it lost 30 Elo.", Signal.DECISION),
        ("Ab jetzt bitte keine Emojis mehr in der Doku.", Signal.PREFERENCE),
        ("No abras PRs sin tests, nunca.", Signal.PREFERENCE),
        ("Dates with the month in words please, like I said.", Signal.CORRECTION),
        ("When you commit: ticket number in front as always please.", Signal.PREFERENCE),
        ("Tu as encore mis des print, utilise le logger.", Signal.CORRECTION),
        ("Stop using npm, we use pnpm in this repo.", Signal.CORRECTION),
        ("Just to let you know, the test account only works on weekdays.", Signal.FACT),
        ("The staging box has only 2 GB of ram, remember that.", Signal.FACT),
        ("Bear in mind: the museum closes its wifi at six.", Signal.FACT),
        ("We'll hash with blake3, sha256 was the bottleneck in the profile.", Signal.DECISION),
        ("Ok, celery it is, because rq has no retries.", Signal.DECISION),
        ("Switch the maps to leaflet instead of google, the bill was 400 a month.", Signal.DECISION),
        ("Nous restons sur Symfony 6 car la 7 casse le bundle.", Signal.DECISION),
        ("Charts with a dark background please.", Signal.PREFERENCE),
    ],
)
def test_what_a_person_says_is_observed(text: str, signal: Signal) -> None:
    found = observations_of_session(session(("user", f"Hi. {text} Thanks!")))
    assert [(each.signal, each.quote) for each in found] == [(signal, text)]


@pytest.mark.parametrize("text", ["Never use floats for money.", "Please don't touch the generated files."])
def test_what_is_forbidden_corrects_only_what_was_done(text: str) -> None:
    first, *_ = observations_of_session(session(("user", text), ("claude", "Understood."), ("user", "Thanks.")))
    *_, last = observations_of_session(session(("user", "Add the cart."), ("claude", "Done."), ("user", text)))
    assert (first.signal, first.quote) == (Signal.PREFERENCE, text)
    assert (last.signal, last.quote) == (Signal.CORRECTION, text)


@pytest.mark.parametrize(
    "text",
    [
        "What if we always used Redis for this?",
        "Maybe we should switch to Bun someday.",
        "```\n# always use tabs\n```",
        "Can you fix the login page",
        "huh, nice, didn't remember we did that",
        "do you remember which port the stub listens on",
        "Remember when this was a shell script?",
        "It always crashes when I click on save.",
        "The staging server on db3 is down again.",
        "Nothing, the report of sunday has 25 hours, as it should.",
        "Let's try it with a bigger heap because it ran out of memory.",
        "Just for tonight use five mips, the projector is weak.",
        "The article says teams always prefer monorepos.",
        "They decided to use kafka in the other team because they love pain.",
        "We could go with fly.io because it's cheap.",
        "We use too much memory, because of the cache I think.",
        "We lost the connection because the cable was out.",
        "Go back to the last commit because the build is broken.",
        "By the way, nice work.",
        "I don't know, it looks odd.",
        "Let's always ship debug builds then, what could possibly go wrong",
        'In the forum: "We decided to use title case because it looks professional"',
        "> We decided to drop Redis because it was slow.",
        "The shop is slow since the update, 6 seconds for a category.",
    ],
)
def test_questions_guesses_and_code_are_not_observed(text: str) -> None:
    found = observations_of_session(session(("user", text)))
    assert {each.signal for each in found} <= {Signal.REQUEST}


def test_only_a_person_has_preferences() -> None:
    text = "Always use tabs. Remember that the port is 9000."
    found = observations_of_session(session(("claude", text), ("agent", text), ("curl -s example.com", text)))
    assert {each.signal for each in found} <= {Signal.CHANGE}


def test_decision_has_its_reason() -> None:
    found = observations_of_session(session(("user", "Let's go with SQLite. It keeps the setup to one file.")))
    assert of(Signal.DECISION, found) == [("Let's go with SQLite.", "It keeps the setup to one file.")]


def test_commands_that_worked_one_after_the_other_are_steps() -> None:
    steps = [("npm run build", "ok"), ("docker build -t shop .", "ok"), ("kubectl rollout restart deploy/shop", "ok")]
    found = observations_of_session(session(*steps))
    assert [each.key for each in found if each.signal is Signal.STEPS] == [
        "npm run build && docker build && kubectl rollout restart"
    ]
    failed = [steps[0], ("docker build -t shop .", "!error: no space left on device /var"), steps[2]]
    assert of(Signal.STEPS, observations_of_session(session(*failed))) == []


def test_command_without_output_is_a_step() -> None:
    said = session(("objcopy a.elf a.bin", "ok"), ("st-flash write a.bin", "ok"), ("python probe.py", "ok"))
    silent = [each for each in said if each.text != "ok"]
    assert len(of(Signal.STEPS, observations_of_session(silent))) == 1


def test_steps_leave_out_commands_that_only_look() -> None:
    assert steps_of("cd app && git status && npm ci && ls dist | head") == ["npm ci"]


def test_steps_leave_out_values_of_options() -> None:
    assert (
        steps_of("./build/solver --case drop --out runs/a.h5") == steps_of("./build/solver --case spike") == ["solver"]
    )
    assert steps_of("kubectl -n prod apply -f k8s/") == ["kubectl apply"]


def test_steps_have_the_check_that_a_service_works() -> None:
    assert steps_of("docker compose up -d api && curl -fsS localhost:8000/health") == ["docker compose up", "curl"]
    assert steps_of("curl -s https://example.com/page") == []


@pytest.mark.parametrize("script", ["docker run '' app", "make ''", "'' x", "python '' -c ''", "git commit -m ''", "("])
def test_empty_words_are_no_steps(script: str) -> None:
    assert all(step.strip() for step in steps_of(script))


@given(st.text(max_size=300))
def test_any_text_can_be_observed(text: str) -> None:
    for who in ("user", "claude", "Bash"):
        observations_of_session(session((who if who in WHO else text, text), ("make", f"!{text}"), ("claude", text)))


def test_quotes_are_verbatim() -> None:
    said = session(("user", "Please, from now on, always use `pnpm`\nand never npm.  \nThanks"))
    for each in observations_of_session(said):
        assert any(each.quote in utterance.text for utterance in said)
