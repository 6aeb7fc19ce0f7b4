"""Reads German sentences and says what is wrong with them, with words and rules of its own.

Nothing here comes from the package: forms are made from stems by the rules of a school grammar, genders, vowel changes
and the cases that verbs take are written down again. A clause is right if its words can be read in some way in which
the verb stands where it must and agrees with a subject, and every other phrase has a case that the verb asks for.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

SLOTS = ("m", "f", "n", "pl")
Reading = tuple[str, str]
"""A case, and a gender or the plural."""
Person = tuple[int, str]
"""1, 2, 3 and sg, pl."""
Subject = tuple[str, Person]
"""The words of a phrase, and what the verb has to be."""


def words_of(text: str) -> set[str]:
    return set(text.split())


def pairs_of(text: str) -> dict[str, str]:
    """What stands before and after the colon of each word."""
    return dict(word.split(":", 1) for word in text.split())


def table(**rows: str) -> dict[Reading, str]:
    """Forms by case and slot; a dash is an empty ending."""
    cells = {(case, s): form for case, row in rows.items() for s, form in zip(SLOTS, row.split(), strict=True)}
    return {reading: form.replace("-", "") for reading, form in cells.items()}


DER = table(nom="der die das die", acc="den die das die", dat="dem der dem den", gen="des der des der")
DIESER = table(nom="er e es e", acc="en e es e", dat="em er em en", gen="es er es er")
EIN = table(nom="- e - e", acc="en e - e", dat="em er em en", gen="es er es er")
WEAK = table(nom="e e e en", acc="en e e en", dat="en en en en", gen="en en en en")
MIXED = table(nom="er e es en", acc="en e es en", dat="en en en en", gen="en en en en")
STRONG = table(nom="er e es e", acc="en e es e", dat="em er em en", gen="en er en er")
CONTRACTED = {
    "im": ("in", {("dat", "m"), ("dat", "n")}),
    "am": ("an", {("dat", "m"), ("dat", "n")}),
    "zum": ("zu", {("dat", "m"), ("dat", "n")}),
    "vom": ("von", {("dat", "m"), ("dat", "n")}),
    "zur": ("zu", {("dat", "f")}),
    "ins": ("in", {("acc", "n")}),
    "ans": ("an", {("acc", "n")}),
}
CASES = {
    "dat": "mit von zu nach in an auf unter neben hinter vor",
    "acc": "ohne über in an auf unter neben hinter vor",
    "gen": "wegen trotz während",
}
PREPOSITIONS = {
    word: {case for case, others in CASES.items() if word in others.split()}
    for row in CASES.values()
    for word in row.split()
}
NUMERALS = {"zwei", "drei"}
UMLAUTS = str.maketrans("äöü", "aou")

# Singular and plural by gender; a star marks nouns that take -n or -en in all cases but the first, a dash those without
# a plural.
MASCULINE = """
Mann Männer, *Junge Jungen, Vater Väter, Bruder Brüder, Onkel Onkel, Großvater Großväter, Sohn Söhne, Freund Freunde,
*Nachbar Nachbarn, Lehrer Lehrer, Schüler Schüler, *Student Studenten, Arzt Ärzte, *Polizist Polizisten, Koch Köche,
*Bauer Bauern, Gast Gäste, *Kollege Kollegen, *Kunde Kunden, Verkäufer Verkäufer, König Könige, Richter Richter,
Maler Maler, Bürgermeister Bürgermeister, Ingenieur Ingenieure, Hund Hunde, Vogel Vögel, *Bär Bären, Esel Esel,
*Löwe Löwen, Apfel Äpfel, Kuchen Kuchen, Keks Kekse, Pfannkuchen Pfannkuchen, Käse -, Reis -, Honig -, Kaffee -, Tee -,
Saft -, Wein -, Brief Briefe, Roman Romane, Artikel Artikel, Bericht Berichte, Witz Witze, Mantel Mäntel, Hut Hüte,
Rock Röcke, Schal Schals, Pullover Pullover, Computer Computer, Schlüssel Schlüssel, Koffer Koffer, Teller Teller,
Löffel Löffel, Spiegel Spiegel, Ball Bälle, Regenschirm Regenschirme, Korb Körbe, Teppich Teppiche, Ring Ringe,
Bleistift Bleistifte, Tisch Tische, Stuhl Stühle, Schrank Schränke, Sessel Sessel, Zug Züge, Bus Busse, Baum Bäume,
Keller Keller, Garten Gärten, Park Parks, Bahnhof Bahnhöfe, Markt Märkte, Strand Strände, Wald Wälder, Fluss Flüsse,
See Seen, Turm Türme, Regen -, Tag Tage, Morgen Morgen, Abend Abende, Monat Monate, Sommer Sommer, Winter Winter,
Montag Montage, Dienstag Dienstage, Mittwoch Mittwoche, Donnerstag Donnerstage, Freitag Freitage, Samstag Samstage,
Sonntag Sonntage
"""
FEMININE = """
Frau Frauen, Mutter Mütter, Schwester Schwestern, Tante Tanten, Großmutter Großmütter, Tochter Töchter,
Königin Königinnen, Kellnerin Kellnerinnen, Schauspielerin Schauspielerinnen, Krankenschwester Krankenschwestern,
Katze Katzen, Kuh Kühe, Maus Mäuse, Ente Enten, Ziege Ziegen, Birne Birnen, Banane Bananen, Orange Orangen,
Kirsche Kirschen, Tomate Tomaten, Kartoffel Kartoffeln, Suppe -, Schokolade -, Milch -, Limonade -, Zeitung Zeitungen,
Zeitschrift Zeitschriften, Geschichte Geschichten, Postkarte Postkarten, Jacke Jacken, Mütze Mützen, Lampe Lampen,
Uhr Uhren, Kamera Kameras, Tasche Taschen, Flasche Flaschen, Tasse Tassen, Gabel Gabeln, Puppe Puppen, Vase Vasen,
Decke Decken, Schachtel Schachteln, Kerze Kerzen, Gitarre Gitarren, Geige Geigen, Bank Bänke,
Straßenbahn Straßenbahnen, Tür Türen, Blume Blumen, Wohnung Wohnungen, Küche Küchen, Schule Schulen, Stadt Städte,
Kirche Kirchen, Bibliothek Bibliotheken, Fabrik Fabriken, Bäckerei Bäckereien, Insel Inseln, Brücke Brücken,
Woche Wochen, Stunde Stunden, Pause Pausen, Arbeit -, Sonne -
"""
NEUTER = """
Kind Kinder, Mädchen Mädchen, Pferd Pferde, Huhn Hühner, Kaninchen Kaninchen, Ei Eier, Brötchen Brötchen, Brot -,
Fleisch -, Obst -, Wasser -, Buch Bücher, Gedicht Gedichte, Märchen Märchen, Kleid Kleider, Hemd Hemden, Radio Radios,
Telefon Telefone, Messer Messer, Bild Bilder, Geschenk Geschenke, Kissen Kissen, Bett Betten, Sofa Sofas, Regal Regale,
Auto Autos, Fahrrad Fahrräder, Motorrad Motorräder, Boot Boote, Schiff Schiffe, Fenster Fenster, Tor Tore,
Haus Häuser, Zimmer Zimmer, Büro Büros, Dorf Dörfer, Museum Museen, Theater Theater, Restaurant Restaurants,
Hotel Hotels, Krankenhaus Krankenhäuser, Schloss Schlösser, Essen -, Wetter -, Wochenende Wochenenden
"""
TIMES = words_of("Tag Morgen Abend Woche Monat Sommer Winter Montag Dienstag Mittwoch Donnerstag Freitag Samstag")
TIMES |= {"Sonntag"}
WOMEN = words_of("Anna Julia Maria Laura Sophie Lena Emma Clara")
MEN = words_of("Peter Martin Paul David Jan Felix Simon Otto")

STEMS = words_of(
    """alt neu groß klein schön jung freundlich müd hungrig klug nett fleißig faul stark krank reich arm glücklich
    traurig berühmt nervös ehrlich vorsichtig rot blau grün gelb weiß schwarz braun grau teur billig schwer leicht
    sauber schmutzig warm kalt heiß frisch süß lecker schnell langsam interessant langweilig lang kurz spannend lustig
    modern ruhig hoh dunkl letzt nächst schlecht"""
)
ALONE = STEMS - words_of("müd teur hoh dunkl letzt nächst") | words_of("müde teuer hoch dunkel gut spät")
MORE = words_of("älter größer jünger klüger stärker kränker ärmer schwärzer wärmer kälter länger kürzer")
MORE |= words_of("teurer dunkler höher müder")
MORE |= {word + "er" for word in ALONE if not any(form.translate(UMLAUTS).startswith(word) for form in MORE)}
MANNERS = words_of("vorsichtig langsam schnell leise laut geduldig allein")
ADVERBS = words_of("gestern heute morgen bald oft manchmal meistens immer selten nie noch schon wo wohin wann warum")
ADVERBS |= {day + "s" for day in words_of("montag dienstag mittwoch donnerstag freitag samstag sonntag")} | MANNERS

# The cases that a verb asks for: a(ccusative), d(ative); a dash for none. A bar parts a prefix that splits off.
VALENCY = """
a: lesen schreiben kaufen verkaufen sehen suchen finden essen trinken brauchen holen tragen waschen putzen reparieren
   öffnen bauen zeichnen kochen backen schneiden besuchen kennen lieben hören treffen füttern fotografieren vergessen
   verlieren beobachten stehlen verstehen rufen benutzen nehmen fangen haben an|rufen ein|laden zu|machen ab|schließen
   an|ziehen aus|ziehen mit|bringen ab|holen auf|räumen aus|schalten ein|schalten auf|hängen ein|packen weg|werfen
   auf|essen auf|wecken stellen legen
d: helfen danken folgen antworten vertrauen gratulieren zu|hören gehören gefallen
da: geben zeigen bringen schicken leihen erzählen an|bieten erklären empfehlen zurück|geben
-: auf|stehen an|kommen ab|fahren ein|schlafen weg|laufen zurück|kommen aus|gehen fern|sehen ein|kaufen schlafen
   arbeiten lachen weinen tanzen singen schwimmen spielen lächeln warten denken sprechen träumen gehen laufen fahren
   reisen fliegen wohnen sitzen liegen stehen sein regnen schneien scheinen
   wissen fragen glauben sagen hoffen vergessen behaupten versuchen planen versprechen
"""
SEIN = words_of("aufstehen ankommen abfahren einschlafen weglaufen zurückkommen ausgehen schwimmen folgen gehen laufen")
SEIN |= words_of("fahren reisen fliegen")
CHANGED = pairs_of(
    """fahren:fähr schlafen:schläf laufen:läuf tragen:träg waschen:wäsch laden:läd fangen:fäng lesen:lies sehen:sieh
    essen:iss geben:gib helfen:hilf nehmen:nimm sprechen:sprich treffen:triff vergessen:vergiss werfen:wirf
    stehlen:stiehl empfehlen:empfiehl versprechen:versprich gefallen:gefäll"""
)
IRREGULAR_PARTICIPLES = pairs_of(
    """lesen:gelesen schreiben:geschrieben sehen:gesehen finden:gefunden essen:gegessen trinken:getrunken
    tragen:getragen waschen:gewaschen backen:gebacken schneiden:geschnitten kennen:gekannt treffen:getroffen
    vergessen:vergessen verlieren:verloren stehlen:gestohlen verstehen:verstanden rufen:gerufen nehmen:genommen
    fangen:gefangen laden:geladen schließen:geschlossen ziehen:gezogen bringen:gebracht werfen:geworfen
    stehen:gestanden kommen:gekommen fahren:gefahren schlafen:geschlafen laufen:gelaufen gehen:gegangen singen:gesungen
    schwimmen:geschwommen helfen:geholfen geben:gegeben leihen:geliehen bieten:geboten empfehlen:empfohlen
    denken:gedacht sprechen:gesprochen fliegen:geflogen sitzen:gesessen liegen:gelegen wissen:gewusst haben:gehabt
    versprechen:versprochen gefallen:gefallen scheinen:geschienen"""
)
# After them, in the same sense, what says where takes the accusative.
DIRECTED = words_of("gehen laufen fahren reisen fliegen stellen legen warten denken")
# ich, du, er, wir and sie.
WHOLE = {
    "sein": "bin bist ist sind",
    "haben": "habe hast hat haben",
    "werden": "werde wirst wird werden",
    "wissen": "weiß weißt weiß wissen",
    "können": "kann kannst kann können",
    "wollen": "will willst will wollen",
    "müssen": "muss musst muss müssen",
    "dürfen": "darf darfst darf dürfen",
}
PAST = {"sein": "war", "haben": "hatte", "geben": "gab"}
PAST |= {"können": "konnte", "wollen": "wollte", "müssen": "musste", "dürfen": "durfte", "sollen": "sollte"}
MODALS = words_of("können wollen müssen dürfen sollen werden")
PRONOUNS: dict[str, set[tuple[str, Person]]] = {}
for _word in words_of(
    """ich/nom/1sg mich/acc/1sg mir/dat/1sg du/nom/2sg dich/acc/2sg dir/dat/2sg er/nom/3sg ihn/acc/3sg ihm/dat/3sg
    sie/nom/3sg sie/acc/3sg sie/nom/3pl sie/acc/3pl ihr/dat/3sg es/nom/3sg es/acc/3sg wir/nom/1pl uns/acc/1pl
    uns/dat/1pl ihnen/dat/3pl Sie/nom/3pl Sie/acc/3pl Ihnen/dat/3pl wer/nom/3sg wen/acc/3sg wem/dat/3sg
    was/nom/3sg was/acc/3sg"""
):
    _form, _case, _who = _word.split("/")
    PRONOUNS.setdefault(_form, set()).add((_case, (int(_who[0]), _who[1:])))
SUBORDINATORS = {"dass", "weil", "wenn", "obwohl", "ob", "bevor", "während", "als", "wann", "warum"}
SOMEBODY: Person = (3, "sg")
NOBODY: Subject = ("", (0, ""))
RELATIVES = {"der", "die", "das", "den", "dem", "denen"}


def determiners() -> dict[str, tuple[set[Reading], dict[Reading, str]]]:
    """Each determiner with its readings and the endings of adjectives after it."""
    found: dict[str, tuple[set[Reading], dict[Reading, str]]] = {}

    def add(word: str, reading: Reading, endings: dict[Reading, str]) -> None:
        found.setdefault(word, (set(), endings))[0].add(reading)

    for reading in DER:
        add(DER[reading], reading, WEAK)
        for stem in ("dies", "jed", "all"):
            if (stem == "jed" and reading[1] == "pl") or (stem == "all" and reading[1] != "pl"):
                continue
            add(stem + DIESER[reading], reading, WEAK)
        for stem in ("ein", "kein", "mein", "dein", "sein", "ihr", "unser"):
            if not (stem == "ein" and reading[1] == "pl"):
                add(stem + EIN[reading], reading, MIXED)
        for stem in ("viel", "einig"):
            if reading[1] == "pl":
                add(stem + DIESER[reading], reading, STRONG)
    return found


DETERMINERS = determiners()


def readings_of_nouns() -> tuple[dict[str, set[Reading]], set[str]]:
    """Each form of a noun with its readings; and the nouns without a plural."""
    found: dict[str, set[Reading]] = {}
    masses: set[str] = set()

    def add(word: str, cases: str, slot: str) -> None:
        found.setdefault(word, set()).update((case, slot) for case in cases.split())

    for slot, text in (("m", MASCULINE), ("f", FEMININE), ("n", NEUTER)):
        for entry in text.split(","):
            one, several = entry.split()
            word = one.removeprefix("*")
            if one != word:
                add(word, "nom", "m")
                add(word + ("n" if word.endswith(("e", "ar", "er")) else "en"), "acc dat gen", "m")
            elif slot == "f":
                add(word, "nom acc dat gen", "f")
            else:
                add(word, "nom acc dat", slot)
                sibilant = word.endswith(("s", "ß", "z", "x"))
                for ending in ("es",) if sibilant else ("s", "es"):
                    add(word + "s" * (word == "Bus") + ending, "gen", slot)
            if several == "-":
                masses.add(word)
            else:
                add(several, "nom acc gen", "pl")
                add(several if several[-1] in "ns" else several + "n", "dat", "pl")
    return found, masses


NOUNS, MASSES = readings_of_nouns()


def stem_of(infinitive: str) -> str:
    return infinitive.removesuffix("n").removesuffix("e")


def forms_of(infinitive: str) -> Iterator[tuple[str, Person]]:
    """The finite forms of a verb without its prefix."""
    if infinitive in WHOLE:
        forms = WHOLE[infinitive].split()
    elif infinitive == "sollen":
        forms = ["soll", "sollst", "soll", "sollen"]
    else:
        stem = stem_of(infinitive)
        changed = CHANGED.get(infinitive, stem)
        # An e makes it possible to speak them: arbeitet, öffnet.
        e = "e" if changed == stem and re.search(r"([td]|(ch|[^aeiouäöürlhmn])[nm])$", stem) else ""
        second = changed + ("t" if changed[-1] in "sßz" and not e else e + "st")
        third = f"{changed}{e}t"
        first = "lächle" if infinitive == "lächeln" else stem + "e"
        forms = [first, second, third, infinitive]
    people: list[Person] = [(1, "sg"), (2, "sg"), (3, "sg")]
    yield from zip(forms[:3], people, strict=True)
    yield from ((forms[3], (person, "pl")) for person in (1, 3))
    if infinitive in PAST:
        past = PAST[infinitive]
        yield from ((past, people[0]), (past + "st", people[1]), (past, people[2]))
        yield from ((past + ("n" if past[-1] == "e" else "en"), (person, "pl")) for person in (1, 3))


def participle_of(prefix: str, base: str) -> str:
    if base in IRREGULAR_PARTICIPLES:
        return prefix + IRREGULAR_PARTICIPLES[base]
    stem = stem_of(base)
    ge = "" if base.endswith("ieren") or re.match(r"be(?!st)|ver|er|emp|ge(?=hör|fall)", base) else "ge"
    e = "e" if re.search(r"([td]|(ch|[^aeiouäöürlhmn])[nm])$", stem) else ""
    return f"{prefix}{ge}{stem}{e}t"


FRAMES: dict[str, set[str]] = {}
PREFIXES: dict[str, set[str]] = {}
SEPARABLE: set[str] = set()
PARTICIPLES: dict[str, set[str]] = {}
FINITE: dict[str, set[tuple[str, Person]]] = {}
_frame = ""
for _word in VALENCY.split():
    if _word.endswith(":"):
        _frame = _word.strip(":-")
        continue
    _prefix, _, _base = _word.rpartition("|")
    FRAMES.setdefault(_prefix + _base, set()).add(_frame)
    if _prefix:
        PREFIXES.setdefault(_prefix, set()).add(_base)
        SEPARABLE.add(_prefix + _base)
    PARTICIPLES.setdefault(participle_of(_prefix, _base), set()).add(_prefix + _base)
    for _form, _person in forms_of(_base):
        FINITE.setdefault(_form, set()).add((_base, _person))
for _word in MODALS:
    for _form, _person in forms_of(_word):
        FINITE.setdefault(_form, set()).add((_word, _person))


def finite(word: str, *, closing: bool = False) -> set[tuple[str, Person]]:
    """What a finite form can be of; at the end of a clause with its prefix."""
    found = set(FINITE.get(word, set()))
    for prefix, bases in PREFIXES.items() if closing else ():
        if word.startswith(prefix):
            rest = FINITE.get(word.removeprefix(prefix), set())
            found |= {(prefix + base, person) for base, person in rest if base in bases}
    return found


def adjective_ending(word: str) -> str | None:
    """The ending of an inflected adjective; None for any other word."""
    for ending in ("e", "em", "en", "er", "es"):
        if word.endswith(ending) and word.removesuffix(ending) in STEMS:
            return ending
    return None


@dataclass(frozen=True)
class Chunk:
    """Words that belong together: ``np`` for people and things, ``pp``, ``adv``, ``pred``, ``verb``, ``not``."""

    kind: str
    words: tuple[str, ...]
    readings: frozenset[tuple[str, Person]] = frozenset()
    slots: frozenset[str] = frozenset()
    known: bool = False
    time: bool = False


def phrases(words: tuple[str, ...], i: int) -> Iterator[tuple[int, set[Reading], bool]]:
    """Noun phrases that start at i: their ends, what they can be, and whether they are definite."""
    j = i
    first = words[i].lower() if i == 0 else words[i]
    readings, after, known, bare = set(DER), STRONG, False, False
    if first in DETERMINERS:
        readings, after = DETERMINERS[first]
        known = not re.match(r"k?ein|viel", first)
        j += 1
    elif first in NUMERALS:
        readings = {reading for reading in DER if reading[1] == "pl"}
        j += 1
    elif words[i].endswith("s") and words[i][:-1] in WOMEN | MEN:
        known = True
        j += 1
    else:
        bare = True
    endings: list[str] = []
    start = j
    while j < len(words) and (ending := adjective_ending(words[j].lower() if j == 0 else words[j])) is not None:
        if j == 0 and words[0] in NOUNS and (len(words) == 1 or words[1] not in NOUNS):
            break
        endings.append(ending)
        j += 1
    if j >= len(words) or words[j] not in NOUNS:
        return
    fits = {r for r in readings & NOUNS[words[j]] if all(after[r] == ending for ending in endings)}
    if bare:
        # Only the plural, and what is not counted, can do without an article; "letzte Woche" is an adverb.
        timely = j > start and re.match(r"letzt|nächst", words[start].lower()) and words[j] in TIMES
        if not timely and words[j] not in MASSES:
            fits = {r for r in fits if r[1] == "pl" and r[0] != "gen"}
    yield j + 1, fits, known


@cache
def chunks(words: tuple[str, ...], i: int) -> tuple[tuple[int, Chunk], ...]:
    """All that can start at i, with where it ends."""
    word = words[i]
    lower = word.lower() if i == 0 else word
    found: list[tuple[int, Chunk]] = []

    def add(end: int, kind: str, **more: object) -> None:
        found.append((end, replace(Chunk(kind, words[i:end]), **more)))  # pyright: ignore[reportArgumentType]

    if word == "X" or lower in ADVERBS:
        add(i + 1, "adv")
        if words[i + 1 : i + 2] in (("Morgen",), ("Abend",)) and lower in ("heute", "gestern"):
            add(i + 2, "adv")
    if lower == "nicht":
        add(i + 1, "not")
    if lower in ALONE:
        add(i + 1, "pred")
    if lower in MORE and words[i + 1 : i + 2] == ("als",) and i + 2 < len(words):
        for end, chunk in chunks(words, i + 2):
            if chunk.kind == "np" and "nom" in {case for case, _ in chunk.readings}:
                add(end, "pred")
    if lower in PREPOSITIONS or lower in CONTRACTED:
        found += prepositional(words, i, lower)
    if lower in PRONOUNS:
        add(i + 1, "np", words=(lower,), readings=frozenset(PRONOUNS[lower]), known=True)
    if word in WOMEN | MEN:
        anywhere = frozenset((case, (3, "sg")) for case in ("nom", "acc", "dat"))
        add(i + 1, "np", readings=anywhere, slots=frozenset("f" if word in WOMEN else "m"), known=True)
    for end, fits, known in phrases(words, i):
        people = frozenset((case, (3, "pl" if slot == "pl" else "sg")) for case, slot in fits)
        slots = frozenset(slot for _, slot in fits)
        for whole in (end, *owners(words, end)) if fits else ():
            known = known or whole > end
            add(whole, "np", readings=people, slots=slots, known=known, time=words[end - 1] in TIMES)
    known_verbs = (FINITE, PARTICIPLES, PREFIXES, FRAMES, MODALS)
    split = re.fullmatch(rf"({'|'.join(PREFIXES)})zu\w+n", lower)
    if split or any(lower in verbs for verbs in known_verbs) or finite(lower, closing=True):
        add(i + 1, "verb")
    if lower == "zu" and words[i + 1 : i + 2] and words[i + 1] in FRAMES and words[i + 1] not in SEPARABLE:
        add(i + 2, "verb")
    if lower == "und":
        add(i + 1, "und")
    return tuple(found)


def owners(words: tuple[str, ...], i: int) -> Iterator[int]:
    """Where a phrase in the genitive ends that starts at i and says whose the thing before it is."""
    if words[i : i + 1] in (("des",), ("der",)):
        for end, fits, _ in phrases(words, i):
            if "gen" in {case for case, _ in fits}:
                yield end


def prepositional(words: tuple[str, ...], i: int, lower: str) -> Iterator[tuple[int, Chunk]]:
    if i + 1 >= len(words):
        return
    rest = words[i + 1]
    if lower in CONTRACTED:
        # It contains the article, and what follows is as if it stood there.
        _, allowed = CONTRACTED[lower]
        for case, slot in allowed:
            for end, fits, _ in phrases((DER[case, slot], *words[i + 1 :]), 0):
                for whole in (i + end, *owners(words, i + end)) if (case, slot) in fits else ():
                    yield whole, Chunk("pp", words[i:whole], frozenset({(case, SOMEBODY)}), frozenset({slot}))
        return
    if (lower, rest) in {("in", "dem"), ("in", "das"), ("an", "dem"), ("an", "das"), ("zu", "dem"), ("zu", "der")}:
        return
    if (lower, rest) == ("von", "dem"):
        return
    for end, chunk in chunks(words, i + 1):
        fits = PREPOSITIONS[lower] & {case for case, _ in chunk.readings}
        if chunk.kind == "np" and fits:
            yield end, Chunk("pp", words[i:end], frozenset((case, SOMEBODY) for case in fits), chunk.slots)


def parses(words: tuple[str, ...], i: int = 0) -> Iterator[list[Chunk]]:
    """All ways to part words into chunks."""
    if i == len(words):
        yield []
        return
    for end, chunk in chunks(words, i):
        for rest in parses(words, end):
            yield [chunk, *rest]


def comes_first(parts: list[Chunk], i: int, frame: str) -> bool:
    """Whether a phrase is the subject rather than another one before it, where their forms do not tell."""
    if {case for case, _ in parts[i].readings} == {"nom"}:
        return True
    for part in parts[:i]:
        # Relative pronouns and "was" stand first whatever they are; those who like something stand before it.
        free = part.words[0] in RELATIVES | {"was"} and len(part.words) == 1
        likes = frame == "d" and part.words[0].removesuffix("s") in WOMEN | MEN
        if part.kind == "np" and not (free or likes or part.time) and "nom" in {case for case, _ in part.readings}:
            return False
    return True


def fits_cases(parts: list[Chunk], frame: str, person: Person | None) -> set[Subject]:
    """The subjects in a person with which all phrases have a case; with None, there is no subject to be found."""
    found: set[Subject] = set()

    def go(i: int, left: str, subject: Subject | None) -> None:
        if i == len(parts):
            if not left and (subject is not None or person is None):
                found.add(subject or NOBODY)
            return
        part = parts[i]
        if part.kind != "np":
            go(i + 1, left, subject)
            return
        for case, who in part.readings:
            if case == "nom" and subject is None and who == person and comes_first(parts, i, frame):
                go(i + 1, left, (" ".join(part.words), who))
            if (case == "acc" and "a" in left) or (case == "dat" and "d" in left):
                go(i + 1, left.replace(case[0], "", 1), subject)
            if case == "acc" and part.time:
                go(i + 1, left, subject)

    go(0, frame, None)
    negated = False
    for part in parts:
        negated |= part.kind == "not"
        if negated and part.kind == "np" and part.known and not part.time:
            # What is known stands before "nicht".
            return set()
    return found


def lexical(verb: str, closing: list[str]) -> set[str]:
    """The verb that a finite verb and what closes the clause stand for; none if they do not go together."""
    if not closing:
        return {verb} if verb not in MODALS else set()
    if len(closing) > 1:
        return set()
    last = closing[0]
    if verb in MODALS:
        return {last} if last in FRAMES and last != "sein" else set()
    whole = verb + "" if last not in PREFIXES else last + verb
    if last in PREFIXES and verb in PREFIXES[last]:
        return {whole}
    if verb in ("haben", "sein"):
        return {word for word in PARTICIPLES.get(last, set()) if (word in SEIN) == (verb == "sein")}
    return set()


def places_fit(parts: list[Chunk], word: str) -> bool:
    """Whether prepositions with two cases have the one that the verb asks for."""
    where_to = False
    for part in parts:
        preposition = CONTRACTED.get(part.words[0].lower(), (part.words[0].lower(), set()))[0]
        if part.kind == "pp" and len(PREPOSITIONS[preposition]) == 2:
            cases = {case for case, _ in part.readings}
            where_to |= "acc" in cases
            if cases == {"acc"} and word not in DIRECTED:
                return False
        where_to |= part.words[0].lower() == "wohin"
    return where_to or word not in ("stellen", "legen")


def clause_fits(parts: list[Chunk], verb: str, closing: list[str], person: Person | None) -> set[Subject]:
    """The subjects with which a clause is right."""
    found: set[Subject] = set()
    for word in lexical(verb, closing):
        pred = [part for part in parts if part.kind == "pred"]
        if pred and not (word == "sein" and len(pred) == 1):
            continue
        if word == "sein" and not pred and not any(part.kind == "pp" or part.words == ("Wo",) for part in parts):
            continue
        if not places_fit(parts, word):
            continue
        # A verb that is there only with its prefix has no frame of its own.
        for frame in FRAMES.get(word, ()):
            found |= fits_cases(parts, frame, person)
        if word == "geben" and any(part.words == ("es",) for part in parts):
            found |= fits_cases(parts, "a", person)
    return found


def split_closing(parts: list[Chunk]) -> tuple[list[Chunk], list[str]]:
    """What stands between the verbs, and the verbs at the end."""
    end = len(parts)
    while end and parts[end - 1].kind == "verb":
        end -= 1
    return parts[:end], [" ".join(part.words) for part in parts[end:]]


def second_part_fits(parts: list[Chunk], verb: str, person: Person, perfect: bool) -> bool:
    """Whether what follows ``und`` goes with the subject, and with the auxiliary if there is one."""
    if not perfect:
        if not parts or parts[0].kind != "verb":
            return False
        middle, closing = split_closing(parts[1:])
        forms = finite(parts[0].words[0])
        return any(clause_fits(middle, base, closing, None) for base, who in forms if who == person)
    middle, closing = split_closing(parts)
    return bool(clause_fits(middle, verb, closing, None)) and not any(part.kind == "verb" for part in middle)


def ordered_clause(words: tuple[str, ...], place: int) -> set[Subject]:
    """The subjects with which a clause is right whose verb is its first (0) or second (1) constituent."""
    found: set[Subject] = set()
    for parts in parses(words):
        if len(parts) <= place or parts[place].kind != "verb" or len(parts[place].words) > 1:
            continue
        if place and parts[0].kind in ("verb", "not", "pred", "und"):
            continue
        shared: list[Chunk] | None = None
        rest = parts[place + 1 :]
        for i, part in enumerate(rest):
            if part.kind == "und":
                rest, shared = rest[:i], rest[i + 1 :]
                break
        middle, closing = split_closing(rest)
        if any(part.kind in ("verb", "und") for part in middle):
            continue
        word = parts[place].words[0]
        for verb, person in finite(word.lower() if place == 0 else word):
            whole = [*parts[:place], *middle]
            perfect = bool(closing) and verb in ("haben", "sein")
            if shared is None or second_part_fits(shared, verb, person, perfect):
                found |= clause_fits(whole, verb, closing, person)
    return found


def final_clause(words: tuple[str, ...], relative: frozenset[str] | None = None) -> set[Subject]:
    """The subjects with which a clause is right whose verb is last. ``relative``: what its first word refers to."""
    found: set[Subject] = set()
    opening: list[Chunk] = []
    if relative is not None:
        forms = {**DER, ("dat", "pl"): "denen"}
        readings = {(c, s) for (c, s), form in forms.items() if form == words[0] and c != "gen" and s in relative}
        people = frozenset((case, (3, "pl" if slot == "pl" else "sg")) for case, slot in readings)
        opening = [Chunk("np", words[:1], people, known=True)]
        words = words[1:]
    for parts in parses(("", *words), 1):
        middle, verbs = split_closing(parts)
        if not verbs or any(part.kind in ("verb", "und") for part in middle):
            continue
        for verb, person in finite(verbs[-1], closing=True):
            found |= clause_fits([*opening, *middle], verb, verbs[:-1], person)
    return found


def infinitive_clause(words: tuple[str, ...]) -> bool:
    for parts in parses(("", *words), 1):
        middle, verbs = split_closing(parts)
        if len(verbs) != 1 or any(part.kind in ("verb", "und") for part in middle):
            continue
        last = verbs[0]
        verb = last.removeprefix("zu ") if last.startswith("zu ") else ""
        for prefix, bases in PREFIXES.items():
            if last.startswith(prefix + "zu") and last.removeprefix(prefix + "zu") in bases:
                verb = prefix + last.removeprefix(prefix + "zu")
        if verb in FRAMES and clause_fits(middle, verb, [], None):
            return True
    return False


@dataclass
class Verdict:
    """What is wrong; and for each clause in which only ``sie`` can be the subject, that word and its number."""

    problems: list[str]
    subjects: list[set[tuple[str, str]]]


def check(de: str) -> Verdict:
    verdict = Verdict([], [])
    for sentence in re.split(r"(?<=\.) ", de):
        check_sentence(sentence, verdict)
    if re.search(r"\bnicht k?ein(?:(?:e|en|em|er|es)\b| )", de):
        verdict.problems.append("nicht ein")
    return verdict


def is_relative(words: list[str]) -> bool:
    last = words[-1]
    return words[0] in RELATIVES and bool(finite(last, closing=True)) and "zu" not in words[-2:]


def check_sentence(sentence: str, verdict: Verdict) -> None:
    asks = sentence.endswith("?")
    parts = [part.split() for part in sentence.rstrip(".?").split(", ")]
    if asks and (parts[0][0] in ("Herr", "Frau") or parts[0][0] in WOMEN | MEN) and len(parts) > 1:
        # Somebody is addressed.
        parts = parts[1:]
        parts[0][0] = parts[0][0][0].upper() + parts[0][0][1:]
    main: list[str] = []
    described = False
    for i, words in enumerate(parts):
        first = words[0].lower() if i == 0 else words[0]
        if first in SUBORDINATORS and not asks and words[1:3] != ["der", "Pause"]:
            judge(verdict, "verb not last", words[1:], final_clause(tuple(words[1:])))
            main += ["X"] if i == 0 else []
        elif i and not described and is_relative(words):
            # There is one at most; what looks like a second one is the rest of the main clause.
            described = True
            slots = last_slots(tuple(main))
            judge(verdict, "relative clause", words, final_clause(tuple(words), slots))
        elif i and not described and (words[-2:-1] == ["zu"] or re.search(r"\wzu\w+n$", words[-1])):
            judge(verdict, "infinitive", words, {NOBODY} if infinitive_clause(tuple(words)) else set())
        elif first == "aber":
            judge_main(verdict, main, asks)
            main = words[1:]
        else:
            main += words
    judge_main(verdict, main, asks)


def last_slots(words: tuple[str, ...]) -> frozenset[str]:
    """What a relative clause after these words can refer to: the last phrase, or who owns it."""
    found = [(end, i, chunk.slots) for i in range(len(words)) for end, chunk in chunks(words, i) if chunk.slots]
    last = max((end for end, _, _ in found), default=0)
    first = min((i for end, i, _ in found if end == last), default=0)
    fitting = (slots for end, i, slots in found if end == last and (i == first or words[i] in ("des", "der")))
    return frozenset(slot for slots in fitting for slot in slots)


def judge_main(verdict: Verdict, words: list[str], asks: bool) -> None:
    first = words[0].lower()
    wh = first.startswith("w") and not finite(first)
    place = 1 if not asks or wh or first in PREPOSITIONS else 0
    judge(verdict, "verb not second" if place else "verb not first", words, ordered_clause(tuple(words), place))


def judge(verdict: Verdict, label: str, words: list[str], subjects: set[Subject]) -> None:
    if not subjects:
        verdict.problems.append(f"{label}, or no agreement: {' '.join(words)}")
    if {text for text, _ in subjects} in ({"sie"}, {"Sie"}):
        verdict.subjects.append({(text, number) for text, (_, number) in subjects})
