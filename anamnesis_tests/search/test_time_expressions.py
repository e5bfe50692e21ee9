"""The time that a question names, on labelled examples, half of them traps."""

import time
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from anamnesis_pipeline.search.time_expressions import Relation, TimeReference, asks_for_all, times_in

NOW = datetime(2026, 11, 18, 15, 0, tzinfo=UTC)
"""A Wednesday."""

NAMED = """
what did we decide last week?                          | during | 2026-11-09 | 2026-11-16 | sure
What happened yesterday                                | during | 2026-11-17 | 2026-11-18 | sure
what did I do on 5 March                               | during | 2026-03-05 | 2026-03-06 | guess
which bug did we fix on December 3                     | during | 2025-12-03 | 2025-12-04 | guess
what changed on March 5th 2024?                        | during | 2024-03-05 | 2024-03-06 | sure
the incident of the 12th of June, 2025                 | during | 2025-06-12 | 2025-06-13 | sure
what was done in 2024-03                               | during | 2024-03-01 | 2024-04-01 | sure
what did we deploy on 2025-07-31?                      | during | 2025-07-31 | 2025-08-01 | sure
notes from 5.3.2024 please                             | during | 2024-03-05 | 2024-03-06 | sure
what changed from 5 March 2025 on                      | after  | 2025-03-05 | -          | sure
the call on 28/02/2025                                 | during | 2025-02-28 | 2025-03-01 | sure
the call on 03/05/2025                                 | during | 2025-05-03 | 2025-05-04 | guess
between 3 March and 5 April 2024 what changed          | during | 2024-03-03 | 2024-04-06 | sure
between November and January, what broke               | during | 2025-11-01 | 2026-02-01 | guess
what moved between Monday and Tuesday?                 | during | 2026-11-16 | 2026-11-18 | sure
everything from 2023 to 2024                           | during | 2023-01-01 | 2025-01-01 | sure
who worked on the parser in spring 2025                | during | 2025-03-01 | 2025-06-01 | sure
what did we try last summer                            | during | 2026-06-01 | 2026-09-01 | guess
what did we plan in the fall of 2024                   | during | 2024-09-01 | 2024-12-01 | sure
two days ago we changed the build, why                 | during | 2026-11-16 | 2026-11-17 | sure
what was I doing two weeks ago                         | during | 2026-11-01 | 2026-11-08 | sure
what have we done since Monday                         | after  | 2026-11-16 | -          | sure
since when I joined in March 2025                      | during | 2025-03-01 | 2025-04-01 | sure
which fixes came after March 2025                      | after  | 2025-04-01 | -          | sure
what did we ship before Christmas 2025                 | before | -          | 2025-12-24 | sure
what did we ship before Christmas                      | before | -          | 2025-12-24 | guess
open points until last Friday                          | before | -          | 2026-11-14 | sure
what did I work on this morning                        | during | 2026-11-18T00 | 2026-11-18T12 | sure
what crashed last night?                               | during | 2026-11-17T18 | 2026-11-18T06 | sure
what did we merge yesterday afternoon                  | during | 2026-11-17T12 | 2026-11-17T18 | sure
changes in the last three days                         | during | 2026-11-15T15 | 2026-11-19 | sure
what was on my list this month                         | during | 2026-11-01 | 2026-12-01 | sure
our plans for Q3 2025                                  | during | 2025-07-01 | 2025-10-01 | sure
the budget of 2024                                     | during | 2024-01-01 | 2025-01-01 | sure
what did we say last year about pricing                | during | 2025-01-01 | 2026-01-01 | sure
what came out in May?                                  | during | 2026-05-01 | 2026-06-01 | guess
what broke in December                                 | during | 2025-12-01 | 2026-01-01 | guess
at the end of March 2025 we had a plan                 | during | 2025-03-21T16 | 2025-04-01 | guess
anything on Thursday 12 Feb 2026?                         | during | 2026-02-12 | 2026-02-13 | sure
what was said on Wed, March 5 2025                       | during | 2025-03-05 | 2025-03-06 | sure
the demo on the 5th?                                   | during | 2026-11-05 | 2026-11-06 | guess
an hour ago you said something on locks                | during | 2026-11-18T13:30 | 2026-11-18T14:30 | sure
what did we settle last weekend                        | during | 2026-11-14 | 2026-11-16 | sure
was haben wir gestern entschieden                      | during | 2026-11-17 | 2026-11-18 | sure
was haben wir letzte Woche entschieden                 | during | 2026-11-09 | 2026-11-16 | sure
am 5. März 2024 war was?                               | during | 2024-03-05 | 2024-03-06 | sure
what did we do in week 46?                             | during | 2026-11-09 | 2026-11-16 | guess
what did we do in calendar week 46 of 2025             | during | 2025-11-10 | 2025-11-17 | sure
what changed in week 51                                | during | 2025-12-15 | 2025-12-22 | guess
what broke in week 53 of 2026                          | during | 2026-12-28 | 2027-01-04 | sure
was haben wir in KW 46 gemacht                         | during | 2026-11-09 | 2026-11-16 | guess
was lief in der KW46/2025?                             | during | 2025-11-10 | 2025-11-17 | sure
was lief in Kalenderwoche 7                            | during | 2026-02-09 | 2026-02-16 | guess
what was merged in 2026-W07                            | during | 2026-02-09 | 2026-02-16 | sure
what was merged on 2026-W07-3                          | during | 2026-02-11 | 2026-02-12 | sure
what was merged in W07?                                | during | 2026-02-09 | 2026-02-16 | guess
what was merged between week 44 and week 46            | during | 2026-10-26 | 2026-11-16 | guess
what was merged in weeks 44 to 45                      | during | 2026-10-26 | 2026-11-09 | guess
what did we do before week 46                          | before | -          | 2026-11-09 | guess
what happened in the second week of February           | during | 2026-02-08 | 2026-02-15 | guess
what did we ship in the first week of March 2026       | during | 2026-03-01 | 2026-03-08 | sure
what did we ship in the last week of last month        | during | 2026-10-25 | 2026-11-01 | sure
what did we ship in the fifth week of January          | during | 2026-01-29 | 2026-02-01 | guess
what did we ship on the first weekend of November      | during | 2026-11-07 | 2026-11-09 | guess
what did we ship on the last day of October            | during | 2026-10-31 | 2026-11-01 | guess
what did we ship on the first of March                 | during | 2026-03-01 | 2026-03-02 | guess
what did we ship in the first half of 2026             | during | 2026-01-01 | 2026-07-01 | sure
what did we ship in the second half of October         | during | 2026-10-16 | 2026-11-01 | guess
was war in der zweiten Woche im Februar                | during | 2026-02-08 | 2026-02-15 | guess
what was said in the week of February 11               | during | 2026-02-09 | 2026-02-16 | guess
what was said in the third quarter                     | during | 2026-07-01 | 2026-10-01 | guess
what was said in the third quarter of 2025             | during | 2025-07-01 | 2025-10-01 | sure
our plans in Q3                                        | during | 2026-07-01 | 2026-10-01 | guess
our plans for Q4                                       | during | 2026-10-01 | 2027-01-01 | guess
our plans of 2025-Q3                                   | during | 2025-07-01 | 2025-10-01 | sure
was war im dritten Quartal                             | during | 2026-07-01 | 2026-10-01 | guess
between 3 and 7 February                               | during | 2026-02-03 | 2026-02-08 | guess
what ran from the 3rd to the 7th of February 2026      | during | 2026-02-03 | 2026-02-08 | sure
what ran between February 3 and 7?                     | during | 2026-02-03 | 2026-02-08 | guess
what ran on 3-7 February                               | during | 2026-02-03 | 2026-02-08 | guess
was lief zwischen dem 3. und 7. Februar                | during | 2026-02-03 | 2026-02-08 | guess
was war am 13. November                                | during | 2026-11-13 | 2026-11-14 | guess
was war im November                                    | during | 2026-11-01 | 2026-12-01 | guess
was war Anfang November                                | during | 2026-11-01 | 2026-11-11 | guess
was war im Sommer 2025                                 | during | 2025-06-01 | 2025-09-01 | sure
was war vorgestern                                     | during | 2026-11-16 | 2026-11-17 | sure
was war gestern Abend                                  | during | 2026-11-17T18 | 2026-11-18 | sure
was war seit Dienstag                                  | after  | 2026-11-17 | -          | sure
was war vorletzte Woche                                | during | 2026-11-02 | 2026-11-09 | sure
what did we say at the weekend                         | during | 2026-11-14 | 2026-11-16 | sure
what did we say the other day about locks              | during | 2026-11-11 | 2026-11-18 | guess
what did we say the week before last                   | during | 2026-11-02 | 2026-11-09 | sure
what did we say on Monday last week                    | during | 2026-11-09 | 2026-11-10 | sure
what did we say last week on Monday                    | during | 2026-11-09 | 2026-11-10 | sure
what did we say on Friday afternoon                    | during | 2026-11-13T12 | 2026-11-13T18 | sure
what did we say on the morning of 12 February 2026     | during | 2026-02-12 | 2026-02-12T12 | sure
what did we say mid-October                            | during | 2026-10-11T08 | 2026-10-21T16 | guess
what did we say in the last few days                   | during | 2026-11-15T15 | 2026-11-19 | guess
what did we say since Tuesday                          | after  | 2026-11-17 | -          | sure
what did we say the day before yesterday               | during | 2026-11-16 | 2026-11-17 | sure
"""

TRAPS = """
when did we move the index to another disk?
how long does a search take
may we use this library in the release
March through the list and fix every entry
what does version 2024.3 of the editor bring
is 3.12.5 supported by the plugin
the server at 10.0.3.24 refuses connections on port 2024
open logs/2024-03-01/app.log and look for errors
read report-2024-03-01.csv
api-version=2024-03-01 is refused
curl https://example.org/2024/03/05/post.html
what did CVE-2024-3094 do
HTTP 404 after 5 retries
more than 2024 rows fail
it stops after 2000 requests
the tests in 2025 files were renamed
a Spring Boot service does not start
do we configure it in Spring or in code
wait 5 minutes, then retry
the last 5 commits
the last minute change to the schema
what is on the last day of the sprint
every Monday the job fails
each Friday we deploy
Fridays are for cleaning up
what does the model Q4_K_M need
this time it worked
use the first week of the sprint
error 1999 in line 2020
section 12 may change
rule 5 march back
the step 3 may fail again
what happens on second 30 of each minute
`yesterday` is a name in the module
next week we release, what is open
what is due next Friday
the second page of 365
bf16 on 2 cores of 2019 hardware
Sunday_report.py fails
fall back to the old parser
a cron expression for every second Tuesday
batteries last a year with it
please winterize the config
issue 2024-11 is about this
in week 7 of the course we talk about trees
which bug did we find in the first week
what fails in week 60
it lasts until week 46 days later
the job runs in the first week of every month
does row 3 to 7 may fail
between 3 and 7 tests fail
the second quarter of the results
use the first half of the list
what runs in the morning
"""


def moment(text: str) -> datetime | None:
    return None if text == "-" else datetime.fromisoformat(text).replace(tzinfo=UTC)


@pytest.mark.parametrize("line", NAMED.strip().splitlines())
def test_a_question_that_names_a_time_is_about_that_span(line: str) -> None:
    question, relation, since, until, sure = (cell.strip() for cell in line.split("|"))
    found = times_in(question, NOW, UTC)
    assert found is not None
    assert (found.relation.value, found.since, found.until) == (relation, moment(since), moment(until))
    assert found.certain is (sure == "sure")
    assert found.words in question


@pytest.mark.parametrize("question", TRAPS.strip().splitlines())
def test_a_number_or_word_that_is_no_date_names_no_time(question: str) -> None:
    assert times_in(question, NOW, UTC) is None


def test_a_day_is_of_the_askers_zone() -> None:
    tokyo = times_in("what did we do yesterday?", NOW, ZoneInfo("Asia/Tokyo"))
    assert tokyo is not None  # in Tokyo it is the 19th already
    assert (tokyo.since, tokyo.until) == (moment("2026-11-17T15"), moment("2026-11-18T15"))
    assert times_in("what happened on 2011-12-30?", NOW, ZoneInfo("Pacific/Apia")) is None, "left out there"


ALL = """
what did we do in week 46?
what did we do in calendar week 46 of 2026
which commits did we make in the second week of February?
what happened in the first week of March
what was done between 3 and 7 February?
what have we done since Tuesday
what did I work on in Q3
what did we do last weekend
what did we do the other day?
what did we do on Friday afternoon?
what did we get done earlier this week
was haben wir am 13. November gemacht?
was haben wir im November gemacht
woran habe ich vorgestern gearbeitet
was haben wir seit Dienstag erledigt
was ist in KW 46 passiert
"""


@pytest.mark.parametrize("question", ALL.strip().splitlines())
def test_a_question_for_a_time_alone_asks_for_all_of_it(question: str) -> None:
    found = times_in(question, NOW, UTC)
    assert found is not None
    assert asks_for_all(question.replace(found.words, " "))


WORDS = st.sampled_from(
    "KW 46 weeks 53 2026-W53 second half quarter weekend of other first des im "
    "last this past in on since before after until between from and to the of ago a few two 3 31 29 2024 9999 999 week "
    "weeks day days month year hour May march February Monday friday spring winter Christmas new year's eve Q3 "
    "2024-02-30 2025-13 30/02/2024 31.12.2025 yesterday morning night vor zwei Wochen end early mid ? , .".split()
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Pacific/Apia", "Asia/Kathmandu", "Africa/Cairo"])
MOMENTS = st.datetimes(datetime(1971, 1, 3), datetime(2099, 12, 30))


@given(st.one_of(st.text(max_size=200), st.lists(WORDS, max_size=12).map(" ".join)), MOMENTS, ZONES)
@example("29 February", datetime(2099, 3, 1), "UTC")
@example("999 years ago", datetime(1971, 1, 3), "UTC")
@example("between 31 December and 1 January", datetime(2026, 1, 1), "Asia/Kathmandu")
def test_no_text_raises_and_a_span_begins_before_it_ends(text: str, now: datetime, zone: str) -> None:
    found = times_in(text, now.replace(tzinfo=UTC), ZoneInfo(zone))
    if found is not None:
        assert found.since is not None or found.until is not None
        assert found.since is None or found.until is None or found.since < found.until
        assert found.words in text


@pytest.mark.parametrize(
    "text", ["in the last three " * 200, "5 March " * 300, "between " * 400, "1" * 5_000, "after the " * 500]
)
def test_a_long_text_costs_next_to_nothing(text: str) -> None:
    times_in(text, NOW, UTC)  # the rules are compiled at the first question
    started = time.process_time()
    for _ in range(5):
        times_in(text, NOW, UTC)
    assert time.process_time() - started < 2, "no rule looks at a text again and again"


def test_a_reference_says_which_words_named_the_time() -> None:
    found = times_in("Which of the fixes came in since last Friday?", NOW, UTC)
    friday = datetime(2026, 11, 13, tzinfo=UTC)
    assert found == TimeReference(friday, None, Relation.AFTER, "Friday", certain=True)
