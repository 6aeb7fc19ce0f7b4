"""The figures in docs/convert.md are those of the records."""

import json

from tools import study_conversions, update_conversions

PAGE = update_conversions.PAGE.read_text(encoding="utf-8")


def between(begin: str, end: str) -> str:
    return PAGE.split(begin)[1].split(end)[0].strip()


def test_speeds_are_those_of_the_record():
    record = json.loads(update_conversions.SPEED.read_text(encoding="utf-8"))
    made = between(update_conversions.SPEED_BEGIN, update_conversions.SPEED_END)
    assert made == "\n".join(update_conversions.speed_lines(record))


def test_the_study_is_that_of_the_record():
    record = json.loads(study_conversions.RECORD.read_text(encoding="utf-8"))
    assert between(study_conversions.BEGIN, study_conversions.END) == "\n".join(study_conversions.lines(record))
