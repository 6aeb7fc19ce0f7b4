"""Toys in the form of some tasks of GLUE and SuperGLUE, to try things out where no data is at hand.

They have the fields of the real ones and nothing of their difficulty: no score on them says anything about GLUE.
"""

import random
from collections.abc import Callable

from synthattn.data.builtin.generated import Example, GeneratedSource, generator
from synthattn.data.builtin.grammar_de import sentence_pair
from synthattn.data.builtin.words import LISTS, templates

_FACTS = templates("fact")
"""Facts: what is told, what is asked, and possible values."""
_CAUSES = templates("cause")
"""Pairs of a cause and an effect. No cause fits the effect of another."""
_PEOPLE = LISTS["person"]


def _statement(rng: random.Random, shortest: int = 1) -> str:
    while True:
        text = sentence_pair(rng)["en"]
        if text.endswith(".") and len(text.split()) >= shortest:
            return text


def _cola(rng: random.Random) -> Example:
    """Write a sentence, or its words in another order; the first word stays, since its capital would tell."""
    sentence = _statement(rng, shortest=5)
    acceptable = rng.random() < 0.5
    if not acceptable:
        first, *words = sentence.removesuffix(".").split()
        shuffled = words
        while shuffled == words:
            shuffled = rng.sample(words, len(words))
        sentence = f"{' '.join([first, *shuffled])}."
    return {"sentence": sentence, "label": int(acceptable)}


def _rte(rng: random.Random) -> Example:
    """Write two statements, and one of them or another statement."""
    first, second, another = (_statement(rng) for _ in range(3))
    entailed = rng.random() < 0.5
    return {
        "sentence1": f"{first} {second}",
        "sentence2": rng.choice((first, second)) if entailed else another,
        "label": "entailment" if entailed or another in (first, second) else "not_entailment",
    }


def _stsb(rng: random.Random) -> Example:
    """Write a statement, and another one in which words of the first replace some words."""
    first, second = (_statement(rng).removesuffix(".").split() for _ in range(2))
    kept = rng.random()
    mixed = [old if rng.random() < kept else new for old, new in zip(first, second, strict=False)]
    mixed += first[len(mixed) :] if kept > 0.5 else second[len(mixed) :]
    return {"sentence1": f"{' '.join(first)}.", "sentence2": f"{' '.join(mixed)}.", "score": _overlap(first, mixed)}


def _overlap(first: list[str], second: list[str]) -> float:
    """Return five times the share of all different words that are in both texts."""
    one, other = ({word.strip(",.").lower() for word in words} for words in (first, second))
    return round(5 * len(one & other) / len(one | other), 2)


def _boolq(rng: random.Random) -> Example:
    """Write facts about people, and a question whose answer is no if it mixes two people up."""
    told, asked, values = rng.choice(_FACTS)
    facts = list(zip(rng.sample(_PEOPLE, 3), rng.sample(values, 3), strict=True))
    (person, value), (_, wrong) = rng.sample(facts, 2)
    label = rng.random() < 0.5
    return {
        "passage": " ".join(told.format(*fact) for fact in facts),
        "question": asked.format(person, value if label else wrong).lower(),
        "label": label,
    }


def _copa(rng: random.Random) -> Example:
    """Write an event, and two causes or effects, one of which belongs to another event."""
    person = rng.choice(_PEOPLE)
    right, wrong = ([text.format(person) for text in pair] for pair in rng.sample(_CAUSES, 2))
    question = rng.choice(("cause", "effect"))
    asked = ("cause", "effect").index(question)
    label = rng.randrange(2)
    first, second = (right[asked], wrong[asked]) if label == 0 else (wrong[asked], right[asked])
    return {"premise": right[1 - asked], "choice1": first, "choice2": second, "question": question, "label": label}


def _key(example: Example) -> str:
    return "\n".join(text for field, text in example.items() if field not in ("label", "score"))


TOYS: dict[str, Callable[..., GeneratedSource]] = {
    label: generator(
        label,
        2,
        generate,
        _key,
        default=1_000,
        held_out=200,
        note=f"{label} is a toy generated from templates, scores on it say nothing about {suite}",
    )
    for label, suite, generate in (
        ("glue/cola", "GLUE", _cola),
        ("glue/rte", "GLUE", _rte),
        ("glue/stsb", "GLUE", _stsb),
        ("superglue/boolq", "SuperGLUE", _boolq),
        ("superglue/copa", "SuperGLUE", _copa),
    )
}
"""Functions that make the sources, by suite and task."""
