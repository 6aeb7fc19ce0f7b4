"""The fault campaigns of ``tools/faults``, at a size for the tests: no traceback, no crash, no wrong number."""

import subprocess

import pytest
from tools.faults import wrong_calls
from tools.faults.outcome import Outcome

from helpers import needs_kernels

pytestmark = pytest.mark.unchecked


def assert_good(outcome: Outcome, count: int) -> None:
    assert outcome.failures == []
    assert outcome.tried == count
    # A campaign that is always refused, or never, tests half of what it should.
    assert min(outcome.counts["clear"], outcome.counts["right"]) >= count // 20


@needs_kernels
def test_wrong_calls():
    assert_good(wrong_calls.run(150, seed=0), 150)


def test_a_bad_result_is_seen(monkeypatch):
    """The campaign compares what is accepted."""
    call = next(c for c in (wrong_calls.calls(0, n) for n in range(100)) if wrong_calls.judge(c)[0] == "right")
    execute = call.execute
    monkeypatch.setattr(call, "execute", lambda a: [1.1 * t + 0.1 for t in execute(a)])
    assert wrong_calls.judge(call)[0] == "wrong"


def test_a_crash_is_counted(monkeypatch):
    """A child that dies is a crash of the call that it tried, and the campaign goes on with the next one."""
    code = """
import os, sys
for number in range(int(sys.argv[2]), int(sys.argv[3])):
    print(number, "call", sep="\\t", flush=True)
    if number == 1:
        os.abort()
    print("clear", "", sep="\\t", flush=True)
"""
    original = subprocess.run
    monkeypatch.setattr(
        wrong_calls.subprocess,
        "run",
        lambda command, **options: original([command[0], "-c", code, *command[3:]], **options),
    )
    outcome = wrong_calls.run(3, seed=0)
    assert (outcome.counts["clear"], outcome.counts["crash"]) == (2, 1)
    assert outcome.failures[0].startswith("crash: call 1 of seed 0: call: code -6")
