"""Keep what a conversion has done in a folder, so that one that was stopped goes on with equal results."""

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from synthattn.data.locks import locked_folder
from synthattn.saved_file import one_line, read_json, replacing, write_text

SETTINGS = "settings.json"
END = ".pt"


class SavedWork:
    """Results by name: lists, numbers and tensors. Without a folder, they are kept in memory.

    Args:
        folder: where each result has a file.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self._made = folder, dict[str, Any]()

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a result that was made before, or make and keep it."""
        if name not in self._made:
            found = self.load(name)
            if found is None:
                found = make()
                self.save(name, found)
            self._made[name] = found
        return self._made[name]

    def load(self, name: str) -> Any | None:
        """Return a result from its file; None if there is none."""
        if self.folder is None or not (file := self.folder / (name + END)).exists():
            return None
        try:
            return torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # torch raises different errors for different damage
            raise OSError(f"{file} is damaged: {one_line(error)}; remove {self.folder}, and start again") from error

    def save(self, name: str, value: Any) -> None:
        """Write a result to its file, which is the old or the new one at any time."""
        if self.folder is not None:
            with replacing(self.folder / (name + END)) as beside:
                torch.save(value, beside)

    def remove(self, name: str) -> None:
        """Remove the file of a result."""
        if self.folder is not None:
            (self.folder / (name + END)).unlink(missing_ok=True)


@contextlib.contextmanager
def saved_work(folder: Path | None, settings: dict[str, Any]) -> Iterator[SavedWork]:
    """Lock a folder, and yield what was done there with equal settings.

    After a ``ValueError``, which needs other settings, the work is removed.
    """
    if folder is None:
        yield SavedWork()
        return
    wanted = json.loads(json.dumps(settings))
    with locked_folder(folder):
        file = folder / SETTINGS
        before = read_json(file) if file.exists() else wanted
        for name, value in wanted.items():
            if before.get(name) != value:
                raise ValueError(
                    f"{folder} was started with {name} {_text(before.get(name))}, this is {_text(value)}; give the "
                    "same, or remove the folder"
                )
        write_text(file, json.dumps(wanted))
        try:
            yield SavedWork(folder)
        except ValueError:
            clear(folder)
            raise


def clear(folder: Path) -> None:
    """Remove the files of all results, and the folder if nothing else is in it."""
    for file in (*folder.glob(f"*{END}"), folder / SETTINGS):
        file.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        folder.rmdir()


def fingerprint(model: nn.Module, texts: Sequence[str], labels: Sequence[int] | None) -> dict[str, str]:
    """Describe a model and texts, with a checksum that other ones do not have."""
    weights = 0
    for name, value in model.state_dict().items():
        data = value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy()
        weights = zlib.crc32(data, zlib.crc32(name.encode(), weights))
    content = zlib.crc32(json.dumps([list(texts), None if labels is None else list(labels)]).encode())
    return {"model": f"{type(model).__name__} {weights:08x}", "texts": f"{len(texts)} {content:08x}"}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
