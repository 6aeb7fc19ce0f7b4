"""English forms: the indefinite article, the third person."""


def with_article(phrase: str) -> str:
    """Put ``a`` or ``an`` before a phrase."""
    return ("an " if phrase[0] in "aeiou" or phrase.startswith("honest") else "a ") + phrase


def third_person(verb: str) -> str:
    if verb == "have":
        return "has"
    if verb.endswith(("s", "sh", "ch", "x", "o")):
        return verb + "es"
    if verb.endswith("y") and verb[-2] not in "aeiou":
        return verb[:-1] + "ies"
    return verb + "s"
