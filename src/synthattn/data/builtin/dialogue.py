"""Small conversations with a persona: replies that cannot be right without the persona or what was said before."""

import random
from dataclasses import dataclass

from synthattn.data.builtin.generated import Example, generator
from synthattn.data.builtin.inflect_en import with_article


@dataclass(frozen=True, slots=True)
class _Topic:
    """A fact about the speaker, with questions about it, replies that state it, and its possible values."""

    fact: str
    questions: tuple[str, ...]
    replies: tuple[str, ...]
    values: tuple[str, ...]


_TOPICS = (
    _Topic(
        "I work as {a}.",
        ("What do you do for a living?", "What is your job?", "Where does your money come from?"),
        ("I work as {a}.", "I am {a}, and I like it.", "I earn my living as {a}."),
        ("nurse", "baker", "teacher", "pilot", "lawyer", "gardener", "mechanic", "actor", "farmer", "electrician"),
    ),
    _Topic(
        "I have {a}.",
        ("Do you have any pets?", "Is there an animal in your house?", "Are you a pet person?"),
        ("Yes, I have {a}.", "Yes, {a} lives with me.", "I do, I have {a}."),
        ("dog", "cat", "parrot", "rabbit", "turtle", "hamster", "goldfish", "hedgehog", "iguana", "old donkey"),
    ),
    _Topic(
        "I live in {x}.",
        ("Where do you live?", "Where is your home?", "Which place do you call home?"),
        ("I live in {x}.", "My home is in {x}.", "In {x}, and I would not want to move."),
        ("Lisbon", "Oslo", "Toronto", "Nairobi", "Hamburg", "Dublin", "Osaka", "Lima", "Vienna", "Sydney"),
    ),
    _Topic(
        "My favorite food is {x}.",
        ("What do you like to eat?", "What is your favorite food?", "What should I cook for you?"),
        ("I like {x} best.", "My favorite food is {x}.", "Anything with {x} makes me happy."),
        ("pizza", "sushi", "lentil soup", "pancakes", "curry", "fried rice", "apple pie", "noodles", "cheese", "salad"),
    ),
    _Topic(
        "In my free time I {x}.",
        ("What do you do in your free time?", "Do you have a hobby?", "How do you spend your weekends?"),
        ("I {x} whenever I can.", "In my free time I {x}.", "Most weekends I {x}."),
        (
            "play chess",
            "climb mountains",
            "paint portraits",
            "sing in a choir",
            "build model ships",
            "ride my bicycle",
            "write poems",
            "collect stamps",
            "swim in the lake",
            "bake bread",
        ),
    ),
    _Topic(
        "I have {x}.",
        ("Do you have brothers or sisters?", "How big is your family?", "Did you grow up alone?"),
        ("I have {x}.", "No lonely childhood here, I have {x}.", "There are more of us, I have {x}."),
        ("two sisters", "three brothers", "a twin brother", "five sisters", "an older sister", "a younger brother"),
    ),
    _Topic(
        "I am learning {x}.",
        ("Are you learning anything new?", "Do you speak other languages?", "What do you study at the moment?"),
        ("I am learning {x}.", "I take lessons in {x}.", "At the moment I study {x}, slowly."),
        ("Spanish", "Japanese", "Polish", "Greek", "Turkish", "Finnish", "Arabic", "Italian", "Danish", "Korean"),
    ),
    _Topic(
        "I drive {a}.",
        ("What kind of car do you drive?", "How do you get to work?", "How did you get here?"),
        ("I drive {a}.", "By car, I drive {a}.", "I have been driving {a} for years."),
        ("red van", "blue pickup", "old jeep", "small electric car", "silver sports car", "green minibus"),
    ),
)
_GREETINGS = ("Hello!", "Hi there!", "Good morning!", "Hi, nice to meet you.", "Hey, how are you?", "Good evening!")
_ANSWERS = ("Hello, how are you doing?", "Hi, I am fine, thanks.", "Hey, good to see you.", "Nice to meet you too.")
_FRIENDS = ("Mia", "Leo", "Nadia", "Tom", "Ines", "Karim", "Ruth", "Pavel", "Olga", "Finn", "Greta", "Hugo", "Sara")
_PLANS = (
    "go to the theater",
    "visit my grandmother",
    "repair the roof",
    "watch the football match",
    "try the new restaurant",
    "plant some tomatoes",
    "see a film",
    "take the boat out",
)
_TIMES = ("tonight", "tomorrow", "on Friday", "on Sunday", "next week", "this afternoon")


def _say(template: str, value: str) -> str:
    """Fill a template with a value, with or without its article, and begin it with a capital."""
    text = template.format(x=value, a=with_article(value))
    return text[0].upper() + text[1:]


def _chat(rng: random.Random) -> Example:
    facts = [(topic, rng.choice(topic.values)) for topic in rng.sample(_TOPICS, rng.randint(3, 5))]
    persona = [_say(topic.fact, value) for topic, value in facts]
    history = [rng.choice(_GREETINGS), rng.choice(_ANSWERS)] if rng.random() < 0.7 else []
    reply = rng.choice((_about_me, _about_me, _remembered, _compared))(rng, facts, history)
    return {"persona": persona, "history": history, "reply": reply}


def _about_me(rng: random.Random, facts: list[tuple[_Topic, str]], history: list[str]) -> str:
    """Ask about the persona, maybe after another question, and return the reply."""
    chosen = rng.sample(facts, 2)
    if rng.random() < 0.5:
        topic, value = chosen[0]
        history += [rng.choice(topic.questions), _say(rng.choice(topic.replies), value)]
    topic, value = chosen[1]
    history.append(rng.choice(topic.questions))
    return _say(rng.choice(topic.replies), value)


def _remembered(rng: random.Random, facts: list[tuple[_Topic, str]], history: list[str]) -> str:
    """Tell a plan, talk about something else, ask about the plan, and return the reply."""
    friend, plan, time = rng.choice(_FRIENDS), rng.choice(_PLANS), rng.choice(_TIMES)
    topic, value = rng.choice(facts)
    history.append(f"I want to {plan} with {friend} {time}. {rng.choice(topic.questions)}")
    history.append(_say(rng.choice(topic.replies), value))
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
    topic, value = rng.choice(facts)
    same = rng.random() < 0.4
    theirs = value if same else rng.choice([other for other in topic.values if other != value])
    history.append(f"{_say(topic.fact, theirs)} Is it the same for you?")
    mine = _say(topic.fact, value).removesuffix(".")
    mine = mine if mine.startswith("I ") else mine[0].lower() + mine[1:]
    return f"Yes, {mine} too." if same else f"No, {mine}."


def _key(example: Example) -> str:
    """Return all that is known before the reply."""
    return "\n".join([*example["persona"], "", *example["history"]])


dialogue_source = generator(
    "dialogue", 1, _chat, _key, default=5_000, held_out=500, note="conversations generated from templates"
)
"""Make a source of turns with the fields ``persona``, ``history`` and ``reply``."""
