"""Text from outside cannot become a part of a page, or control who shows it."""

import re

from report_helpers import sample_results

from synthattn.compare.page import markdown, page, picture

HOSTILE = "[/x] \x1b[2J\x07\x9b31m\u202eback\u2028\ud800 <b>&amp;\"'|\\\\|"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def test_a_page_has_no_control_characters_and_no_tags_from_outside():
    results = sample_results()
    results.data = results.task = HOSTILE
    results.command = results.answer[0] = results.notes[0] = HOSTILE
    results.facts[HOSTILE] = HOSTILE
    results.samples[0].source = results.samples[0].reference = HOSTILE
    results.variants[0].samples[0] = HOSTILE
    results.variants[1].attention = HOSTILE
    for text in (page(results), picture(results), markdown(results)):
        assert not CONTROL.search(text)
        assert "<b>" not in text
        text.encode()
