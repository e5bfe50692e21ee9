"""A later sentence and an older one on the same subject: whether it speaks against it."""

import pytest

from anamnesis_pipeline.knowledge.opposing import ends_name, opposes
from anamnesis_pipeline.knowledge.statements import claim_of


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("Feature flags are kept in LaunchDarkly.", "LaunchDarkly got cancelled, feature flags are in our own table"),
        ("Use Python 3.9 for the data jobs.", "the data jobs need Python 3.12 now, 3.9 was removed from the image"),
        ("Maria approves production releases.", "Maria left the company, production releases are approved by Tom"),
        ("Le serveur de test tourne sur la machine hermes.", "hermes n'existe plus, le serveur de test est sur zeus"),
        ("The product pages are cached for 10 minutes.", "product pages are cached for 2 hours, not 10 minutes"),
        ("The admin console needs a VPN.", "the admin console doesn't need a VPN any more"),
        ("The frontend is built with Vue.", "our frontend isn't built with Vue"),
        ("Addresses of recipients are never logged.", "log the addresses of the recipients for each delivery"),
        ("Never open a port to 0.0.0.0/0; use the bastion.", "open the port of the db to 0.0.0.0/0"),
        ("Use httpx for HTTP calls.", "use requests for HTTP calls"),
        ("The public API is REST.", "the public API is GraphQL"),
        ("The zone shop.example is hosted at Route 53.", "The zone shop.example is hosted at Cloudflare."),
        ("Logs go to Loki.", "Logs no longer go to Loki, they go to ClickHouse."),
        ("Der Server steht in Nürnberg.", "Der Server steht nicht mehr in Nürnberg, sondern in Falkenstein."),
        ("Les sauvegardes vont chez OVH.", "Les sauvegardes ne vont plus chez OVH."),
        ("Events are kept in Kafka for a week.", "events aren't kept in Kafka any more, they go to Pulsar"),
        ("The pump hangs on the Gosund plug in the cellar.", "The pump is on the Meross plug `pump-2` now."),
        ("Produktion läuft mit Django 4 auf Debian 11.", "Es läuft **Django 5 auf Debian 12**."),
        ("write the tests with vitest, not jest", "no, tests are jest"),
        ("und http mit axios", "kein axios bitte, wir nehmen nur fetch"),
        ("the docs are formal, no jokes", "the docs are casual, with jokes"),
        ("javadoc on every public method please", "remove the javadoc, no javadoc in this repo"),
        ("Le serveur de production tourne sous PHP 8.1.", "le serveur de production tourne désormais sous PHP 8.3"),
    ],
)
def test_later_sentence_speaks_against_an_older(older: str, newer: str) -> None:
    assert opposes(claim_of(older), claim_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The admin console needs a VPN.", "the admin console needs a VPN and a token"),
        ("The customer exports are XML files.", "the customer exports no longer fit on the disk"),
        ("Never push directly to main.", "push the branch and open a pull request against main"),
        ("Scans tickets also without network.", "the scanner refreshes its list when there is network"),
        ("Use httpx for HTTP calls.", "use a timeout of 5 s for HTTP calls"),
        ("The public API is REST.", "the internal API is GraphQL"),
        ("The frontend is built with Vue.", "the frontend isn't loading in Safari"),
        ("Bilder immer als PDF einbinden, nie als PNG.", "wie gesagt: bilder immer als pdf einbinden, nie als png"),
        ("The queue is Redis.", "The queue has no Redis password."),
        ("use yarn for the frontend", "no yarn lock in the diff please"),
        ("Payments go through Stripe.", "No Stripe events arrived during the night."),
        ("La API usa MySQL 5.7.", "La API ya no falla con MySQL 5.7."),
        ("The worker listens on port 7000.", "Port 7000 no longer clashes with the worker."),
        ("Images are stored in MinIO.", "The images are no longer resized by MinIO."),
        ("Der Server steht in Nürnberg.", "Der Server in Nürnberg hat keine Platte mehr frei."),
        ("Auth tokens live 30 minutes.", "Auth tokens of partners live 15 minutes now."),
        ("Releases are tagged with Git.", "the release notes were removed from the page"),
    ],
)
def test_both_sentences_hold(older: str, newer: str) -> None:
    assert opposes(claim_of(older), claim_of(newer)) == ""


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (
            "The shop is hosted on Heroku, eu region.",
            "There is no Heroku involved any more: the shop is on a rack.",
        ),
        ('Jobs go to the queue "slow" with four workers.', 'By the way: the queue "slow" is gone.'),
        ("Volumes are provisioned by OpenEBS.", "The volumes are on Ceph (the only class, OpenEBS was removed)."),
        (
            "Das Display ist ein SSD1306 am I2C, Adresse 0x3C.",
            "0x3D hat das neue; auf 0x3C antwortet nichts mehr.",
        ),
    ],
)
def test_name_is_no_longer_there(older: str, newer: str) -> None:
    assert ends_name(claim_of(older), claim_of(newer))


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        ("The shop is hosted on Heroku.", "The deploy of the shop to Heroku does not fail any more."),
        ("The shop is hosted on Heroku.", "The shop is fast now on Heroku."),
        ("No Heroku for the shop.", "There is no Heroku in the shop any more."),
        ("Der Kunde zahlt mit Karte.", "Der Kunde ist nicht mehr da, die Karte liegt im Tresor."),
    ],
)
def test_name_is_still_there(older: str, newer: str) -> None:
    assert ends_name(claim_of(older), claim_of(newer)) == ""
