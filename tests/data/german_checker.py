"""Reads sentences of the German grammar by rules of its own; only its words are those of the lexicon.

A reading is a case (n, a, d) with a gender, p for plurals, or a person. A clause becomes a string of letters: N for
noun phrases, R after a preposition, F for finite and E for other verbs, B for what may be both, X for all else.
"""

import re
from pathlib import Path

from synthattn.data import builtin

STRONG = {"er": "nm df", "e": "nf af np ap", "es": "nn an", "en": "am dp", "em": "dm dn"}
WEAK = {"e": "nm nf nn af an", "en": "am dm df dn np ap dp"}
ARTICLES = {"der": "nm df", "die": "nf af np ap", "das": "nn an", "den": "am dp", "dem": "dm dn"}
PRONOUNS = {"ich": "n1", "mich": "a1", "mir": "d1", "du": "n2", "dich": "a2", "dir": "d2", "er": "nm", "ihn": "am"}
PRONOUNS |= {"ihm": "dm dn", "ihr": "df", "es": "nn an", "sie": "nf af np ap", "ihnen": "dp", "wir": "np", "wer": "nm"}
PRONOUNS |= {"uns": "ap dp", "wen": "am", "wem": "dm", "was": "an"}
PREPOSITIONS = {"in": "ad", "an": "ad", "auf": "ad", "zu": "d", "mit": "d", "von": "d"}
JOINED = {"im": "in dem", "ins": "in das", "am": "an dem", "ans": "an das", "zum": "zu dem", "zur": "zu der"}
JOINED["vom"] = "von dem"
TIMES = "gestern|letzte Woche|letzten Sommer|vor zwei Tagen|am Montag|jeden Tag|jeden Morgen|im Sommer|am Wochenende"
TIMES += "|nach der Arbeit|morgen|bald|nächste Woche|in einer Stunde|heute Abend"
INFINITIVE = r"\bzu \w+$|zu(?!rückge|machen)\w+en$"
LEXICON = [line.split("\t") for line in Path(builtin.__file__).with_name("lexicon_de.tsv").read_text().splitlines()]
NOUNS: dict[str, set[str]] = {}
FINITE: dict[str, set[str]] = {}
ENDS: set[str] = set()
ADJECTIVES = {row[2] for row in LEXICON if row[0] == "adjective"}
OTHERS = {row[1] for row in LEXICON if row[0] == "adjective"} | {
    row[3] for row in LEXICON if row[:2] == ["time", "often"]
}
OTHERS |= {"xx", "nicht", "weil", "obwohl", "wenn", "als", "dass", "ob", "warum", "wann"}


def add(words: dict[str, set[str]], word: str, readings: str) -> None:
    if word:
        words.setdefault(word, set()).update(readings.split())


for kind, *row in LEXICON:
    if kind == "noun":
        add(NOUNS, row[0], " ".join(case + row[1] for case in ("n" if row[3] else "nad")))
        add(NOUNS, row[0] + row[3], f"a{row[1]} d{row[1]}")
        add(NOUNS, row[2], "np ap")
        add(NOUNS, row[2] and row[2] + "n" * (row[2][-1] not in "ns"), "dp")
    elif kind == "name":
        add(NOUNS, row[0], " ".join(case + row[1] for case in "nad"))
    elif kind == "finite":
        for form, person in zip(row, ("1", "2", "m f n", "p"), strict=True):
            add(FINITE, form, person)
    elif kind == "verb":
        ENDS |= {row[0], row[0] + row[1], row[0] + row[3], f"{row[0]}zu{row[1]}"}
        second = re.sub(r"([sßz])st$", r"\1t", row[2][:-1] + "st")
        for form, person in ((row[1][:-1], "1"), (second, "2"), (row[2], "m f n"), (row[1], "p")):
            if row[1] not in ("haben", "sein"):
                add(FINITE, form, person)
                add(FINITE, row[0] + form, person)


ENDS.remove("haben")  # it has no modal


def noun_phrase(words: list[str]) -> tuple[int, set[str]]:
    """Return how many words are a noun phrase, and its readings; without any, words do not agree."""
    found = re.fullmatch(r"(k?ein|mein|dein|sein|ihr|unser)(e|es|en|em|er|)", words[0])
    der = re.fullmatch(r"(?:dies|jed)(er|e|es|en|em)", words[0])
    readings, endings = {case + slot for case in "nad" for slot in "mfnp"}, STRONG
    if found or der or words[0] in ARTICLES or words[0] == "zwei":
        text = ARTICLES.get(words[0]) or STRONG.get(der[1] if der else found[2] if found else "", "nm nn an")
        if words[0] != "zwei":
            readings, endings = set(text.split()), {"er": "nm", "es": "nn an"} if found and not found[2] else WEAK
    start = int(bool(found or der or words[0] in ARTICLES or words[0] == "zwei"))
    described = re.fullmatch(r"(\S+?)(e|es|en|em|er)", words[start]) if len(words) > start + 1 else None
    if described and (described[1] in ADJECTIVES or described[1] + "e" in ADJECTIVES):
        readings, start = readings & set(endings.get(described[2], "").split()), start + 1
    if len(words) > start and words[start] in NOUNS:
        return start + 1, readings & NOUNS[words[start]]
    return (1, set(PRONOUNS[words[0]].split())) if words[0] in PRONOUNS else (0, set())


def check(clause: str, pattern: str, subject: str = "") -> bool:
    """Return whether phrases agree, the verb agrees with a subject, and the letters are those of a pattern."""
    words = " ".join(JOINED.get(word, word) for word in re.sub(rf"\b({TIMES})\b", "xx", clause).split()).split()
    letters, subjects, persons, unclear, objects = "", set(subject.split()), set(), set(), subject == "n_"
    while words:
        size, readings = noun_phrase(words)
        governed = PREPOSITIONS.get(words[0]) if len(words) > 1 else None
        if governed and (size := noun_phrase(words[1:])[0]):
            readings, size = {one for one in noun_phrase(words[1:])[1] if one[0] in governed}, size + 1
        elif size and words[0] not in ("wen", "wem", "was"):
            # The subject is the first phrase, in questions for an object the second, and no other is a nominative.
            readings = {one for one in readings if one[0] != "n"} if objects else readings
            subjects, objects = subjects if objects else subjects | readings, True
        if size and not readings and words[0] == "ihr":
            size, readings = 1, {"df"}
        if size and not readings:
            return False
        if size:
            letters += "R" if governed else "N"
        else:
            size, word = 1, words[0]
            letters += (
                "B" if word in FINITE and word in ENDS else "F" if word in FINITE else "E" if word in ENDS else "X"
            )
            if letters[-1] == "X" and word not in OTHERS:
                return False
            if letters[-1] == "F":
                persons |= FINITE[word]
            unclear |= FINITE.get(word, set())
        words = words[size:]
    persons = persons or unclear
    agree = not persons or any(one[0] == "n" and one[1] in persons for one in subjects)
    return agree and re.fullmatch(pattern, letters) is not None


def correct(text: str) -> bool:
    """Return whether a sentence has no mistake that can be seen."""
    main, good = text[0].lower() + text[1:-1], True
    if text.split(" ")[0].strip(",") in NOUNS and text.split(" ")[1] not in NOUNS:
        main = text[:-1]
    for relative in re.findall(r", (?:der|die|das|den|dem|denen) [^,]*(?:,|$)", main):
        if re.search(INFINITIVE, relative):
            continue
        word, _, rest = relative.strip(", ").partition(" ")
        good &= check(rest, r"[NRX]*[EB]?[FB]", {**ARTICLES, "denen": "dp"}[word])
        main = main.replace(relative, " ", 1)
    for number, clause in enumerate(main.split(", ")):
        if re.match(r"(weil|obwohl|wenn|als|dass|ob) ", clause):
            good &= check(clause, r"X[NRX]*[EB]?[FB]")
        elif re.search(INFINITIVE, clause) and number:
            good &= check(re.sub(r"zu (\w+)$", r"zu\1", clause), r"[NRX]*[EX]", "n_")
        else:
            inverted = number or (text.endswith("?") and not re.match(r"(wer|wen|wem|was|warum|wann) ", clause))
            good &= check(clause, ("" if inverted else "[NRX]") + r"[FB][NRX]*[EB]?")
    return good
