"""A later sentence and an older one on the same subject: whether it speaks against it."""

import pytest

from anamnesis_pipeline.knowledge.opposing import opposes
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
        ("Releases are tagged with Git.", "the release notes were removed from the page"),
    ],
)
def test_both_sentences_hold(older: str, newer: str) -> None:
    assert opposes(claim_of(older), claim_of(newer)) == ""
