"""Small conversations with a persona: replies that cannot be right without the persona or what was said before."""

import random
from collections.abc import Sequence

from synthattn.data.builtin.generated import Example, generator
from synthattn.data.builtin.words import LISTS, templates, with_article

_Topic = tuple[str, Sequence[str], Sequence[str], Sequence[str]]
_TOPICS: Sequence[_Topic] = templates("topic")
"""Facts about the speaker, each with questions about it, replies that state it, and its possible values."""


def _say(template: str, value: str) -> str:
    """Fill a template with a value, with or without its article, and begin it with a capital."""
    text = template.format(x=value, a=with_article(value))
    return text[0].upper() + text[1:]


def _chat(rng: random.Random) -> Example:
    facts = [(topic, rng.choice(topic[-1])) for topic in rng.sample(_TOPICS, rng.randint(3, 5))]
    persona = [_say(fact, value) for (fact, *_), value in facts]
    history = [rng.choice(LISTS["greeting"]), rng.choice(LISTS["answer"])] if rng.random() < 0.7 else []
    reply = rng.choice((_about_me, _about_me, _remembered, _compared))(rng, facts, history)
    return {"persona": persona, "history": history, "reply": reply}


def _about_me(rng: random.Random, facts: list[tuple[_Topic, str]], history: list[str]) -> str:
    """Ask about the persona, maybe after another question, and return the reply."""
    first, ((_, questions, replies, _), value) = rng.sample(facts, 2)
    if rng.random() < 0.5:
        (_, earlier, said, _), known = first
        history += [rng.choice(earlier), _say(rng.choice(said), known)]
    history.append(rng.choice(questions))
    return _say(rng.choice(replies), value)


def _remembered(rng: random.Random, facts: list[tuple[_Topic, str]], history: list[str]) -> str:
    """Tell a plan, talk about something else, ask about the plan, and return the reply."""
    friend, plan, time = (rng.choice(LISTS[kind]) for kind in ("person", "plan", "time"))
    (_, questions, replies, _), value = rng.choice(facts)
    history.append(f"I want to {plan} with {friend} {time}. {rng.choice(questions)}")
    history.append(_say(rng.choice(replies), value))
    asks: tuple[tuple[str, str], ...] = (
        ("Do you remember who comes with me?", f"Yes, you said that {friend} comes with you."),
        ("Now, when was my plan again?", f"You told me that it is {time}."),
        ("I forgot, what did I want to do?", f"You want to {plan.replace('my ', 'your ')}."),
    )
    question, reply = rng.choice(asks)
    history.append(question)
    return reply


def _compared(rng: random.Random, facts: list[tuple[_Topic, str]], history: list[str]) -> str:
    """State another person's fact of some kind, and return the reply that says if it is shared."""
    (fact, *_, values), value = rng.choice(facts)
    same = rng.random() < 0.4
    theirs = value if same else rng.choice([other for other in values if other != value])
    history.append(f"{_say(fact, theirs)} Is it the same for you?")
    mine = _say(fact, value).removesuffix(".")
    mine = mine if mine.startswith("I ") else mine[0].lower() + mine[1:]
    return f"Yes, {mine} too." if same else f"No, {mine}."


def _key(example: Example) -> str:
    """Return all that is known before the reply."""
    return "\n".join([*example["persona"], "", *example["history"]])


dialogue_source = generator(
    "dialogue", 1, _chat, _key, default=5_000, held_out=500, note="conversations generated from templates"
)
"""Make a source of turns with the fields ``persona``, ``history`` and ``reply``."""
