"""Damaged files: each is an error of one line that names the file, or is read exactly as it stands."""

from collections import Counter
from pathlib import Path

import pytest
from tools.faults import data_files

pytestmark = pytest.mark.unchecked


def test_the_loaders_tell_damage_or_it_does_not_matter(tmp_path: Path):
    verdicts: Counter[str] = Counter()
    for seed in range(1000):
        folder = tmp_path / str(seed)
        folder.mkdir()
        verdict, why, _ = data_files.load(data_files.prepare(folder, seed))
        assert verdict in ("right", "clear"), f"{seed}: {why}"
        verdicts[verdict] += 1
    assert min(verdicts["right"], verdicts["clear"]) > 200


def test_the_command_tells_damage_or_it_does_not_matter():
    outcome = data_files.run(60, seed=1)
    assert not outcome.failures, outcome.failures[0]
    assert min(outcome.counts["right"], outcome.counts["clear"]) > 6
