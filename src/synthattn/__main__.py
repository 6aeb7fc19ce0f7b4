"""``python -m synthattn``, which ``torchrun`` can start as well."""

from synthattn.cli import main

main()
