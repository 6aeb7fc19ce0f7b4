"""Write the kept records of runs in as little room as they can be read from.

    python tools/compact_records.py docs/results/records

JSON loses its blanks, and rows of examples are packed; every file is read again and compared before it is replaced.
"""

import json
import sys
from pathlib import Path

import numpy as np

from synthattn.training.packed_rows import packed_rows, unpacked_rows


def main() -> None:
    folder = Path(sys.argv[1])
    for path in sorted(folder.rglob("*.json")):
        found = json.loads(path.read_text(encoding="utf-8"))
        text = json.dumps(found, separators=(",", ":"), ensure_ascii=False) + "\n"
        assert json.loads(text) == found
        path.write_text(text, encoding="utf-8")
    for path in sorted(folder.rglob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            rows = unpacked_rows({name: file[name] for name in file.files})
        beside = path.with_name("rows.part.npz")
        np.savez_compressed(beside, **packed_rows(rows))  # pyright: ignore[reportArgumentType]
        with np.load(beside, allow_pickle=False) as file:
            again = unpacked_rows({name: file[name] for name in file.files})
        assert list(again) == list(rows)
        assert all(again[name].tobytes() == rows[name].tobytes() for name in rows), path
        beside.replace(path)


if __name__ == "__main__":
    main()
