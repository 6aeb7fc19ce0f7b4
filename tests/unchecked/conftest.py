import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))


@pytest.fixture
def command(capsys, monkeypatch) -> Callable[..., subprocess.CompletedProcess[str]]:
    """The command in this process, which has imported all that takes so long; what it prints, and its code."""
    from synthattn.cli.app import main

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        monkeypatch.setattr(sys, "argv", ["synthattn", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capsys.readouterr()
        code = ended.value.code
        return subprocess.CompletedProcess(arguments, code if isinstance(code, int) else 0, said.out, said.err)

    return call
