"""Short reports with one event that matters, and summaries that state it: for summarization without a download.

A report tells who did what, where and when, mostly in two sentences that refer to each other, among sentences about
the weather, passers-by and other things that a summary leaves out.
"""

import random

from synthattn.data.builtin.generated import generator
from synthattn.data.builtin.words import LISTS, templates, with_article

_EVENTS = templates("event")
"""Events: what the report says, what the summary says, and possible results, which both state."""


def _report(rng: random.Random) -> dict[str, str]:
    """Write a document of four to eight sentences and its summary of one or two."""
    report, told, results = rng.choice(_EVENTS)
    first, last = rng.choice(LISTS["first"]), rng.choice(LISTS["last"])
    town, day, site = rng.choice(LISTS["town"]), rng.choice(LISTS["day"]), rng.choice(LISTS["site"])
    values = {
        "name": f"{first} {last}",
        "last": last,
        "town": town,
        "day": day,
        "site": site,
        "job": with_article(rng.choice(LISTS["job"])),
        "number": rng.choice(LISTS["number"]),
        "when": f"on {day} {rng.choice(LISTS['hour'])}",
    }
    result = rng.choice(results).format(**values) + "."
    fillers = rng.sample(LISTS["filler"], rng.randint(2, 6))
    # The report opens with its event or leads up to it; a result stands anywhere after it.
    lead = rng.choice((0, 0, 0, 1, 2))
    body = [_filled(rng, filler, last, site, town) for filler in fillers]
    opening, rest = body[:lead], body[lead:]
    rest.insert(rng.randint(0, len(rest)), result)
    summary = told.format(**values) + "."
    if rng.random() < 0.5:
        summary = f"{summary} {result}"
    return {"document": " ".join([*opening, report.format(**values) + ".", *rest]), "summary": summary}


def _filled(rng: random.Random, filler: str, last: str, site: str, town: str) -> str:
    """Fill in a sentence about other people and things."""

    def another(kind: str, but: str = "") -> str:
        return rng.choice([one for one in LISTS[kind] if one != but])

    filled = filler.format(
        other=f"{another('first')} {another('last', last)}",
        weather=another("weather"),
        traffic=another("traffic"),
        otherjob=with_article(another("job")),
        tune=another("tune"),
        cents=rng.randint(2, 19) * 10,
        othersite=another("site", site),
        vehicle=another("vehicle"),
        othertown=another("town", town),
    )
    return f"{filled}."


summaries_source = generator(
    "summaries",
    1,
    _report,
    lambda example: example["document"],
    default=5_000,
    held_out=500,
    note="short reports generated from templates",
)
"""Make a source of reports with the fields ``document`` and ``summary``."""
