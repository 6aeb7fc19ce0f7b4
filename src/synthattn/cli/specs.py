"""Parse lists of specs."""

import re


def split(attention: str) -> list[str]:
    """Split specs at commas outside brackets."""
    return [spec.strip() for spec in re.split(r",(?![^(]*\))", attention) if spec.strip()]
