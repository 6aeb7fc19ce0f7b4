"""Lists of specs as a user types them."""

import re


def split(attention: str) -> list[str]:
    """Specs between commas; those inside brackets do not count."""
    return [spec.strip() for spec in re.split(r",(?![^(]*\))", attention) if spec.strip()]
