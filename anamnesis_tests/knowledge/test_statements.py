"""Two sentences on one subject: whether both can hold."""

import pytest

from anamnesis_pipeline.knowledge.statements import Weights, claim_of, conflicts


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We deploy on Fridays.", "Deploys are on Mondays now, no longer on Fridays."),
        ("We deploy on Friday.", "We deploy on Monday."),
        ("The API listens on port 8080.", "The API listens on port 9090."),
        ("Use npm for the frontend.", "Use pnpm instead of npm for the frontend."),
        ("Never mock the database in tests.", "Mock the database in tests."),
        ("Indent Python with tabs.", "Indent Python with spaces."),
        ("keep backups 30 days", "keep backups 7 days"),
        ("The cache TTL is 5 minutes.", "Actually the cache TTL is 60 seconds."),
        ("Retry failed payments three times.", "Retry failed payments five times."),
        ("Max upload size is 20 MB.", "Max upload size is 1 GB."),
        ("The nightly job starts at 02:00.", "The nightly job starts at 04:30."),
        ("Journal files are kept for 30 days.", "Correction: they are kept for 400 days, not 30 days; legal asked."),
        ("Our default region is eu-west-1.", "Our default region is eu-central-1."),
        ("El host de pruebas es stage1.acme.io.", "El host de pruebas es stage2.acme.io."),
        ("Rehearsals are on Tuesdays in the hall.", "Rehearsals are on Thursdays, no longer on Tuesdays."),
        ("Feature flags live in LaunchDarkly.", "Feature flags live in a table, LaunchDarkly is gone."),
        ("Presence is tracked over Redis.", "Presence is tracked without Redis now."),
        ("Die Token laufen nach 60 Minuten ab.", "Die Token laufen nach 15 Minuten ab."),
        ("The free plan has 3 seats.", "The free plan has 5 seats since March."),
        ("We pin Postgres to 14.", "We pin Postgres to 16."),
        ("Passwords need 8 characters.", "Passwords need at least 12 characters."),
        ("Avatars are cached for an hour.", "Avatars aren't cached any more."),
        ("On utilise Jenkins pour la CI.", "On n'utilise plus Jenkins pour la CI."),
        ("Docs are built with Sphinx.", "We switched the docs from Sphinx to MkDocs."),
    ],
)
def test_opposite_statements_conflict(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("We deploy on Fridays.", "Deploys happen every Friday."),
        ("The API listens on port 8080.", "Port 8080 is the one of the API."),
        ("Never mock the database in tests.", "The database is never mocked in tests."),
        ("Max upload size is 20 MB.", "The max upload size is twenty megabytes."),
        ("Keep backups for two weeks.", "Backups are kept for 14 days."),
    ],
)
def test_paraphrases_do_not_conflict(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer)) == ""


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Keep backups for 30 days.", "Keep logs for 7 days."),
        ("The session timeout is 15 minutes.", "The cache timeout is 30 minutes."),
        ("The API allows 60 requests a minute with a token.", "The API allows 25 requests a minute without a token."),
        ("Our default region is eu-west-1.", "The backup region is eu-central-1."),
        ("Use port 8080 in development.", "Use port 80 in production."),
        ("Run dos2unix on the sheet.", "The sheet can't be read before its line ends are removed with dos2unix."),
        ("Sensor 12: battery replaced.", "Sensor 13: battery replaced."),
        ("The mobile app talks to api.acme.io.", "The web app talks to web.acme.io."),
        ("In July the report had 12 pages.", "In August the report had 14 pages."),
    ],
)
def test_statements_on_two_things_do_not_conflict(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer)) == ""


def test_conflict_is_told_in_the_words_of_the_sentences() -> None:
    older, newer = claim_of("Prices are stored as floats."), claim_of("Prices are no longer stored as floats.")
    assert conflicts(older, newer) == "turns down floats"
    assert conflicts(claim_of("keep backups 30 days"), claim_of("keep backups 7 days")) == "30 days and 7 days"


def test_rare_words_weigh_more_than_common_ones() -> None:
    claims = [claim_of(f"the service {name} logs errors") for name in ("billing", "search", "mail", "login")]
    weights = Weights(claims)
    rare, common = claim_of("billing"), claim_of("errors logs")
    assert weights.shared(rare, claims[0]) == weights.shared(common, claims[1]) == 1
    assert weights.alike(rare, claims[0]) > weights.alike(claim_of("logs"), claims[0])


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "Reminder mails are sent on day 2 and 9.",
            "Reminder mails go out on day 5 only since May; legal wanted it.",
        ),
        ("Version minimale du noyau : 5.4.", "Version minimale du noyau passée à 6.1, le pilote la demande."),
        ("Les livraisons se font le lundi.", "les livraisons c'est le mercredi maintenant, plus le lundi"),
        ('Depths are in the local datum "Pier 12".', 'Depths are in NHN from now on; "Pier 12" was given up.'),
    ],
)
def test_newer_sentence_updates_an_older(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Session timeout of admins is 30 minutes.", "Session timeout of customers is 12 hours since May."),
        ("Invoices of the DE entity count up from 1000.", "Invoices of the CH entity count up from 5000 since May."),
        ("Reminder mails are sent on day 2.", "Reminder mails have been in two languages since May."),
    ],
)
def test_newer_sentence_on_another_thing_updates_none(older: str, newer: str) -> None:
    assert conflicts(claim_of(older), claim_of(newer)) == ""
