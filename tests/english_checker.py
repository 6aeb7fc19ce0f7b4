"""Reads English sentences and says where subject and verb disagree, with words and rules of its own.

Every word becomes a letter for what it is, and a clause is matched by patterns of letters. A word that is in no list is
a noun, and one that ends with an s is a plural.
"""

import re
from functools import cache


def words_of(text: str) -> set[str]:
    return set(text.split())


BASES = words_of(
    """read write buy sell see look find eat drink need fetch wear wash clean repair open build draw cook bake
    cut visit know love hear meet feed photograph forget lose watch steal understand call use take catch phone
    invite close lock put bring pick tidy turn hang pack throw wake get arrive depart fall run come go sleep
    work laugh cry dance sing swim play smile help thank follow answer trust congratulate listen belong give
    show send lend tell offer explain recommend return wait think speak dream drive travel fly live sit lie
    stand place lay rain snow shine believe say hope claim try plan promise ask want like"""
)
IRREGULAR = words_of(
    """wrote written bought sold saw seen found ate eaten drank drunk wore worn built drew drawn knew known
    heard met fed forgot forgotten lost stole stolen understood took taken caught brought hung threw thrown woke
    woken got gotten fell fallen ran came went gone slept sang sung swam swum gave given showed shown sent lent
    told thought spoke spoken drove driven flew flown sat lay lain stood laid shone said had read put cut"""
)
PLURALS = words_of("men women children mice policemen salesmen")
SINGULARS = words_of("bus dress actress waitress")
ADJECTIVES = words_of(
    """old new big small beautiful young friendly tired hungry smart nice hard-working lazy strong sick rich
    poor happy sad famous nervous honest careful red blue green yellow white black brown gray expensive cheap
    heavy light dirty warm cold hot fresh sweet tasty fast slow interesting boring long short exciting funny
    modern quiet tall dark bad good fairy"""
)
NAMES = words_of("Anna Julia Maria Laura Sophie Lena Emma Clara Peter Martin Paul David Jan Felix Simon Otto")
ADVERBS = words_of("often sometimes always usually rarely never already not yesterday tomorrow today tonight soon yet")
CONJUNCTIONS = words_of("because although when if before while whether why but")
LETTERS = {
    "t": "the no my your his our their",
    "d": "a an this every",
    "D": "these many some two three all",
    "g": "her",
    "h": "he she it",
    "i": "I",
    "u": "you we they",
    "o": "me him us them",
    "A": "am",
    "I": "is",
    "R": "are",
    "W": "was",
    "V": "were",
    "H": "has",
    "B": "have",
    "S": "does",
    "O": "do",
    "M": "will can cannot could should did",
    "k": "who that what",
    "&": "and",
    "2": "to",
    "P": "in on at into under next behind front of with without for by despite during after ago as than up off away"
    " along back out asleep television shopping more there where when why before because",
}
WORD_LETTERS = {word: letter for letter, words in LETTERS.items() for word in words.split()}
OWNER = r"(?:[tdDg]?a*p|e)"
ONE = rf"(?:{OWNER}?[tdg]?a*[nc]|E|h)"
MANY = rf"(?:{OWNER}?[tDg]?a*N|u)"
# Who can be followed by which finite verbs; b, j and B are plural, j is a participle too, q is a past too.
AGREES = {ONE: "sqwMIWHS", MANY: "bjqwMRVBO", "i": "bjqwMAWBO"}
FINITE = "sbjqwMARIWVHBSO"


def third_person(base: str) -> str:
    if base.endswith(("s", "sh", "ch", "x", "o")):
        return base + "es"
    return re.sub(r"([^aeiou])y$", r"\1ie", base) + "s"


def past_forms(base: str) -> set[str]:
    return {base + "ed", base + "d", base + base[-1] + "ed", re.sub("y$", "ied", base)}


THIRD = {third_person(base): base for base in BASES}
PAST = {form for base in BASES for form in past_forms(base)} - BASES | IRREGULAR


@cache
def letter(word: str, before: str) -> str:
    """What a word is, after words with these letters."""
    if word in WORD_LETTERS:
        return WORD_LETTERS[word]
    if word in ADVERBS or (word.endswith("ly") and word not in ("friendly", "fly")) or word == "alone":
        return "r"
    if word in NAMES:
        return "E"
    if word.endswith(("'s", "s'")):
        return "e" if word[:-2] in NAMES else "p"
    if word in ADJECTIVES:
        return "a"
    if word == "clean" and re.search(r"(?:^|[tdDgpea]|[AIRWV]r*)$", before):
        return "a"
    if word in ("work", "rain") and before.endswith(("P", "t")):
        return "n"
    if word in ("run", "come"):
        return "j"
    if word in BASES and word in PAST:
        return "q"
    if word in BASES:
        return "b"
    if word in THIRD:
        return "s"
    if word in PAST:
        return "w"
    return "N" if word in PLURALS or (word.endswith("s") and word not in SINGULARS) else "n"


def letters(words: list[str]) -> str:
    found = ""
    for word in words:
        found += letter(word, found)
    return found


def clauses(en: str) -> list[list[str]]:
    """Parts of a sentence with a subject of their own, but for relative clauses."""
    found: list[list[str]] = []
    for part in re.split(r"(?<!Mr)(?<!Mrs)[.?,]\s*", en):
        words = part.split()
        current: list[str] = []
        for i, word in enumerate(words):
            small = word if i or word in NAMES or word == "I" else word[0].lower() + word[1:]
            complement = small == "that" and current and letter(current[-1], "") in "bsjqw"
            # "Before the meal" and "because of" have nothing to do with clauses.
            plain = words[i + 1 : i + 3] == ["the", "meal"] or words[i + 1 : i + 2] == ["of"]
            opens = small in CONJUNCTIONS and not plain and not (en.endswith("?") and not i)
            if opens or complement:
                found.append(current)
                current = []
            else:
                current.append(small)
        found.append(current)
    return [words for words in found if words]


def disagreements(en: str) -> list[str]:
    found = []
    for words in clauses(en):
        tags = letters(words)
        if not agrees(tags, asks=en.endswith("?")):
            found.append(f"{' '.join(words)} ({tags})")
    return found


def agrees(tags: str, *, asks: bool) -> bool:
    if not re.search(f"[{FINITE}]", tags):
        return True
    return relatives_agree(tags) and (
        statement_agrees(tags) or (asks and (question_agrees(tags) or subject_question_agrees(tags)))
    )


def relatives_agree(tags: str) -> bool:
    """Of clauses that describe a noun: its verb agrees with the noun, or with a subject of its own."""
    for found in re.finditer(rf"([nN])k(?:({ONE})|({MANY})|(i))?r*([{FINITE}])", tags):
        noun, one, many, me, verb = found.groups()
        subject = ONE if one else MANY if many else "i" if me else (ONE if noun == "n" else MANY)
        if verb not in AGREES[subject]:
            return False
    return True


def statement_agrees(tags: str) -> bool:
    # A relative clause of the subject has one verb, and the next one is the subject's.
    relative = rf"(?:k(?:{ONE}|{MANY}|i)?r*[{FINITE}][^{FINITE}]*?)?"
    if re.match(r"r*P[IRWV]", tags):
        # There is, there are.
        return re.match(r"r*P(?:[IW](?:d|t)a*n|[RV][Dt]a*N)", tags) is not None
    for subject, verbs in AGREES.items():
        start = re.match(rf"r*{subject}{relative}r*(?=[{verbs}])", tags)
        if start and follows(tags[start.end() :], verbs):
            return True
    return False


def follows(tags: str, verbs: str) -> bool:
    """Whether an auxiliary has the right form after it, and a verb after ``and`` agrees as the first one does."""
    if tags[0] in "SOM" and not re.match(r".r*[bjqB]", tags):
        return False
    if tags[0] in "HB" and re.match(r".r*[bs]", tags):
        return False
    second = re.search(r"&(.)", tags)
    return second is None or second[1] in verbs


def question_agrees(tags: str) -> bool:
    for subject, verbs in AGREES.items():
        found = re.match(rf"[kPr]*([{verbs.translate(str.maketrans('', '', 'sbjqw'))}]){subject}(.*)", tags)
        if found and (found[1] not in "SOM" or re.match(r"r*[bjqB]", found[2])):
            return True
    return False


def subject_question_agrees(tags: str) -> bool:
    found = re.match(rf"kr*([{FINITE}])", tags)
    return found is not None and found[1] in AGREES[ONE] and follows(tags[found.start(1) :], AGREES[ONE])
