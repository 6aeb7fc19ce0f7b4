"""Short reports with one event that matters, and summaries that state it: for summarization without a download.

A report tells who did what, where and when, mostly in two sentences that refer to each other, among sentences about
the weather, passers-by and other things that a summary leaves out.
"""

import random
from dataclasses import dataclass

from synthattn.data.builtin.generated import generator
from synthattn.data.builtin.inflect_en import with_article

_FIRST = (
    "Amira Ben Carla Dario Elif Frida Goran Hana Igor Jonas Katrin Lukas Mina Nora Oskar Petra Rosa Stefan Tara Viktor"
)
_LAST = "Adler Brook Castell Dorn Ekberg Falk Grantham Holm Ivers Jansen Kolb Lindt Marsh Novak Orton Quist Ruiz Sander"
_TOWNS = "Altenau Birkdale Corvin Dunmore Eastwick Fellbach Greyport Harlow Inverby Kirkham Lowenfeld Marwick Norden"
_DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_HOURS = ("early in the morning", "around noon", "in the afternoon", "late in the evening", "shortly after midnight")
_SITES = (
    "library",
    "town hall",
    "harbor",
    "railway station",
    "old mill",
    "market square",
    "school",
    "museum",
    "stadium",
)
_JOBS = ("teacher", "baker", "engineer", "nurse", "gardener", "bus driver", "carpenter", "student", "photographer")
_NUMBERS = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")


@dataclass(frozen=True, slots=True)
class _Event:
    """An event as the report and the summary state it, with possible results, which both state."""

    report: str
    summary: str
    results: tuple[str, ...]


_EVENTS = (
    _Event(
        "{who}, {job} from {town}, rescued {number} people from a fire at the {site} {when}",
        "{name} rescued {number} people from a fire at the {site} in {town} on {day}",
        (
            "The mayor thanked {last} for the courage",
            "All of them were taken to a hospital",
            "Nobody was seriously hurt",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, found {number} old paintings in the cellar of the {site} {when}",
        "{name} found {number} old paintings at the {site} in {town} on {day}",
        (
            "Experts believe that they are worth a fortune",
            "The town wants to show them to the public",
            "They will be given to the owner's family",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, opened a new bakery beside the {site} {when}",
        "{name} opened a new bakery beside the {site} in {town} on {day}",
        (
            "The first hundred customers paid nothing",
            "The shop has given work to {number} people",
            "It is the first bakery in the town for years",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, won the annual race around the {site} {when}",
        "{name} won the annual race around the {site} in {town} on {day}",
        (
            "The prize was {number} hundred crowns",
            "It was the runner's first victory",
            "Last year's winner came in third",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, was arrested near the {site} {when} after a chase through {number} streets",
        "{name} was arrested near the {site} in {town} on {day}",
        (
            "Police suspect {last} of several thefts",
            "The trial will begin in the spring",
            "A stolen bicycle was found nearby",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, collected {number} thousand signatures at the {site} {when}",
        "{name} collected {number} thousand signatures at the {site} in {town} on {day}",
        (
            "The petition asks for a new bridge",
            "The council must now discuss the plan to close the swimming pool",
            "The petition asks for more trees in the streets",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, gave a concert for {number} hundred listeners at the {site} {when}",
        "{name} gave a concert for {number} hundred listeners at the {site} in {town} on {day}",
        (
            "The money from the tickets goes to the children's hospital",
            "The concert will be repeated next month",
            "The applause lasted for ten minutes",
        ),
    ),
    _Event(
        "{who}, {job} from {town}, crashed a truck into the gate of the {site} {when}",
        "{name} crashed a truck into the gate of the {site} in {town} on {day}",
        (
            "The repairs will take {number} weeks",
            "The road stayed closed for {number} hours",
            "The brakes had failed, according to the police",
        ),
    ),
)
_DISTRACTORS = (
    "The weather was {weather} for the season",
    "{other} watched from a window across the street",
    "Traffic in the center was {traffic} as usual",
    "{other}, {otherjob}, said that the day had started like any other",
    "A street musician was playing {tune} not far away",
    "The shops nearby stayed open",
    "{other} had come to visit relatives and missed everything",
    "Coffee was sold at a small stand for {cents} cents",
    "The {othersite} is being painted this year",
    "Many visitors came by {vehicle}",
    "{other} is known in the town as {otherjob}",
    "A school class from {othertown} was on a trip that day",
)
_WEATHER = ("mild", "cold", "unusually warm", "wet", "windy")


def _report(rng: random.Random) -> dict[str, str]:
    """Write a document of four to eight sentences and its summary of one or two."""
    event = rng.choice(_EVENTS)
    first, last = rng.choice(_FIRST.split()), rng.choice(_LAST.split())
    town, day, site = rng.choice(_TOWNS.split()), rng.choice(_DAYS), rng.choice(_SITES)
    values = {
        "name": f"{first} {last}",
        "who": f"{first} {last}",
        "last": last,
        "town": town,
        "day": day,
        "site": site,
        "job": with_article(rng.choice(_JOBS)),
        "number": rng.choice(_NUMBERS),
        "when": f"on {day} {rng.choice(_HOURS)}",
    }
    result = rng.choice(event.results).format(**values) + "."
    sentences = [event.report.format(**values) + ".", result]
    fillers = rng.sample(_DISTRACTORS, rng.randint(2, 6))
    # The report opens with its event or leads up to it; a result stands anywhere after it.
    lead = rng.choice((0, 0, 0, 1, 2))
    body = [_filled(rng, filler, last, site, town) for filler in fillers]
    opening, rest = body[:lead], body[lead:]
    rest.insert(rng.randint(0, len(rest)), sentences[1])
    summary = event.summary.format(**values) + "."
    if rng.random() < 0.5:
        summary = f"{summary} {result}"
    return {"document": " ".join([*opening, sentences[0], *rest]), "summary": summary}


def _filled(rng: random.Random, filler: str, last: str, site: str, town: str) -> str:
    """Fill in a sentence about other people and things."""
    other = f"{rng.choice(_FIRST.split())} {rng.choice([name for name in _LAST.split() if name != last])}"
    return (
        filler.format(
            weather=rng.choice(_WEATHER),
            other=other,
            traffic=rng.choice(("slow", "heavy", "light")),
            otherjob=with_article(rng.choice(_JOBS)),
            tune=rng.choice(("the accordion", "an old song", "the violin", "a march")),
            cents=rng.randint(2, 19) * 10,
            othersite=rng.choice([other for other in _SITES if other != site]),
            vehicle=rng.choice(("bus", "train", "bicycle", "boat")),
            othertown=rng.choice([other for other in _TOWNS.split() if other != town]),
        )
        + "."
    )


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
