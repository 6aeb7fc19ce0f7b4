"""Checkpoints are whole or are not used."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as limits
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from synthattn import saved_file
from synthattn.saved_file import write_text
from synthattn.training import checkpoints, record
from synthattn.training.checkpoints import SEAL, WEIGHTS, average, damage, last_good, prune, seal


def made(run: Path, step: int, sealed: bool = True) -> Path:
    folder = run / f"checkpoint-{step}"
    folder.mkdir()
    (folder / WEIGHTS).write_bytes(bytes(range(97)))
    (folder / "trainer_state.json").write_text('{"step": 3}')
    (folder / "empty").touch()
    if sealed:
        seal(folder)
    return folder


def test_what_is_sealed_is_whole(tmp_path: Path):
    folder = made(tmp_path, 3)
    assert damage(folder) is None
    seal(folder)
    assert damage(folder) is None, "sealing again changes nothing"
    assert last_good(tmp_path) == (folder, [])


def test_every_kind_of_damage_is_found(tmp_path: Path):
    folder = made(tmp_path, 3, sealed=False)
    assert damage(folder) == "is only half written"
    seal(folder)
    weights = folder / WEIGHTS
    content = weights.read_bytes()
    weights.write_bytes(content[:-1])
    assert damage(folder) == f"has a damaged {WEIGHTS}", "cut short"
    weights.write_bytes(content + b"x")
    assert damage(folder) == f"has a damaged {WEIGHTS}", "with something behind it"
    weights.unlink()
    assert damage(folder) == f"lacks {WEIGHTS}"
    weights.mkdir()
    assert damage(folder) == f"lacks {WEIGHTS}"


def test_folders_in_a_checkpoint_are_sealed(tmp_path: Path):
    folder = made(tmp_path, 3, sealed=False)
    inner = folder / "optimizer_0"
    inner.mkdir()
    for name in ("__0_0.distcp", SEAL):
        (inner / name).write_bytes(b"shard")
    seal(folder)
    assert damage(folder) is None
    (inner / "__0_0.distcp").write_bytes(b"sharp")
    assert damage(folder) == "has a damaged optimizer_0/__0_0.distcp"
    (inner / "__0_0.distcp").unlink()
    assert damage(folder) == "lacks optimizer_0/__0_0.distcp"
    checkpoints.remove(folder)
    assert not folder.exists()


@given(st.integers(0, 96), st.integers(0, 7))
@limits(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_one_wrong_bit_is_found(tmp_path: Path, place: int, bit: int):
    folder = tmp_path / "checkpoint-3"
    if not folder.exists():
        made(tmp_path, 3)
    content = bytearray(range(97))
    content[place] ^= 1 << bit
    (folder / WEIGHTS).write_bytes(content)
    assert damage(folder) == f"has a damaged {WEIGHTS}"
    (folder / WEIGHTS).write_bytes(bytes(range(97)))
    assert damage(folder) is None


def test_a_damaged_seal_is_told_and_never_fatal(tmp_path: Path):
    folder = made(tmp_path, 3)
    whole = (folder / SEAL).read_bytes()
    for place in range(len(whole)):
        for flip in (1, 2, 8, 32, 128):
            wrong = bytearray(whole)
            wrong[place] ^= flip
            (folder / SEAL).write_bytes(wrong)
            if json_or_none(bytes(wrong)) != json.loads(whole):
                assert damage(folder), bytes(wrong)
    for wrong in (b"", b"[]", b"3", b'{"empty": 3}', b'{"empty": [3]}', b"null"):
        (folder / SEAL).write_bytes(wrong)
        assert "cannot be read" in (damage(folder) or ""), wrong


def test_a_seal_must_name_what_every_checkpoint_has(tmp_path: Path):
    folder = made(tmp_path, 3)
    whole = json.loads((folder / SEAL).read_text())
    (folder / SEAL).write_text("{}")
    assert damage(folder) == f"has a seal without {WEIGHTS}"
    (folder / SEAL).write_text(json.dumps({WEIGHTS: whole[WEIGHTS]}))
    assert damage(folder) == "has a seal without trainer_state.json"


@pytest.mark.parametrize("name", ["checkpoint-²", "checkpoint-٣", "checkpoint-03"])
def test_other_digits_are_no_step(tmp_path: Path, name: str):
    good = made(tmp_path, 3)
    (tmp_path / name).mkdir()
    assert checkpoints.checkpoints(tmp_path) == [good]


def test_of_a_link_to_a_checkpoint_only_the_link_is_removed(tmp_path: Path):
    elsewhere, run = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    run.mkdir()
    kept = made(elsewhere, 10)
    (run / "checkpoint-10").symlink_to(kept)
    assert last_good(run) == (run / "checkpoint-10", [])
    for step in (20, 30):
        made(run, step)
    prune(run, 2, None, every=10, last=100)
    assert [checkpoints.step_of(folder) for folder in checkpoints.checkpoints(run)] == [30, 20]
    assert damage(kept) is None


def json_or_none(text: bytes) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def test_the_newest_whole_one_is_used_and_the_others_are_named(tmp_path: Path):
    good = made(tmp_path, 9)
    made(tmp_path, 2)
    made(tmp_path, 10, sealed=False)
    (made(tmp_path, 100) / "trainer_state.json").unlink()
    (tmp_path / "checkpoint-best").mkdir()
    (tmp_path / "checkpoint-200").touch()
    found, complaints = last_good(tmp_path)
    assert found == good
    assert complaints == [
        "checkpoint-100 lacks trainer_state.json, and is not used",
        "checkpoint-10 is only half written, and is not used",
    ]
    assert [folder.name for folder in checkpoints.checkpoints(tmp_path)] == [
        "checkpoint-100",
        "checkpoint-10",
        "checkpoint-9",
        "checkpoint-2",
    ]


def test_nothing_whole(tmp_path: Path):
    assert last_good(tmp_path) == (None, [])
    made(tmp_path, 1, sealed=False)
    assert last_good(tmp_path) == (None, ["checkpoint-1 is only half written, and is not used"])


@pytest.mark.parametrize(
    ("keep", "best", "left"),
    [(2, None, [40, 30]), (2, 10, [40, 30, 10]), (1, 40, [40]), (9, None, [40, 30, 20, 10]), (1, 5, [40])],
)
def test_the_newest_and_the_best_are_kept(tmp_path: Path, keep: int, best: int | None, left: list[int]):
    for step in (10, 20, 30, 40):
        made(tmp_path, step)
    prune(tmp_path, keep, best, every=10, last=100)
    assert [checkpoints.step_of(folder) for folder in checkpoints.checkpoints(tmp_path)] == left


def test_a_checkpoint_of_an_interruption_goes_when_there_is_a_newer_one(tmp_path: Path):
    for step in (10, 20, 23):
        made(tmp_path, step)
    prune(tmp_path, 2, None, every=10, last=25)
    assert [checkpoints.step_of(folder) for folder in checkpoints.checkpoints(tmp_path)] == [23, 20, 10]
    made(tmp_path, 25)
    prune(tmp_path, 2, None, every=10, last=25)
    assert [checkpoints.step_of(folder) for folder in checkpoints.checkpoints(tmp_path)] == [25, 20]


def test_half_written_ones_do_not_count_as_kept(tmp_path: Path):
    made(tmp_path, 10)
    made(tmp_path, 20)
    made(tmp_path, 30, sealed=False)
    prune(tmp_path, 1, None, every=10, last=100)
    assert last_good(tmp_path)[0] == tmp_path / "checkpoint-20"


def test_the_average_is_the_mean(tmp_path: Path):
    torch.manual_seed(0)
    folders, tensors = [], []
    for step in (1, 2, 3):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        tensors.append(
            {
                "matrix": torch.randn(5, 7),
                "half": torch.randn(3).to(torch.bfloat16),
                "count": torch.tensor([11]),
                "scalar": torch.randn(()),
            }
        )
        save_file(tensors[-1], folder / WEIGHTS, metadata={"format": "pt"})
        folders.append(folder)
    target = tmp_path / "mean.safetensors"
    assert average(folders, target) == 3
    found = load_file(target)
    for name in ("matrix", "half", "scalar"):
        mean = torch.stack([one[name].double() for one in tensors]).mean(0)
        assert found[name].dtype == tensors[0][name].dtype
        torch.testing.assert_close(found[name], mean.to(found[name].dtype), rtol=1e-7, atol=1e-7)
    assert found["count"].tolist() == [11]
    assert list(tmp_path.glob("*.part")) == []
    with pytest.raises(ValueError, match="there are no checkpoints to average"):
        average([], target)


def test_a_text_is_the_old_one_or_the_new_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "record.json"
    write_text(file, "old ä")
    write_text(file, "new ä")
    assert file.read_text(encoding="utf-8") == "new ä"
    assert list(tmp_path.iterdir()) == [file]

    def full(number: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(saved_file.os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_text(file, "newest")
    assert file.read_text(encoding="utf-8") == "new ä"


def test_a_record_comes_back(tmp_path: Path):
    one = record.RunRecord(status="done", loss=[[1.0, 2.5]], notes=["ä"], best_step=3)
    one.save(tmp_path)
    assert record.load(tmp_path) == one


def test_a_folder_without_a_record(tmp_path: Path):
    with pytest.raises(ValueError, match=r"holds no record\.json, so it is not the folder of a run"):
        record.load(tmp_path)
