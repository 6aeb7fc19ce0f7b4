"""The command ``synthattn``: one file per verb, each loaded when it is called."""

from synthattn.cli.app import main

__all__ = ["main"]
