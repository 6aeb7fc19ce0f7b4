"""Run fault campaigns and print their counts; exit with 1 if any input ended badly."""

import argparse
import importlib
import sys

from tools.faults.outcome import HEADER

CAMPAIGNS = {
    "configurations": 1000,
    "data_files": 1000,
    "checkpoints": 300,
    "killed_runs": 20,
    "wrong_calls": 2000,
}
"""The module of each campaign, and how many inputs it tries unless told otherwise."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument(
        "campaign", nargs="*", metavar="campaign", help=f"any of {', '.join(CAMPAIGNS)}; all by default"
    )
    parser.add_argument("--count", type=int, help="inputs to try in each campaign")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    unknown = set(given.campaign) - set(CAMPAIGNS)
    if unknown:
        parser.error(f"unknown campaign {sorted(unknown)[0]}; choose from {', '.join(CAMPAIGNS)}")
    print(HEADER)
    failures = []
    for name in given.campaign or CAMPAIGNS:
        campaign = importlib.import_module(f"tools.faults.{name}")
        outcome = campaign.run(CAMPAIGNS[name] if given.count is None else given.count, given.seed)
        print(outcome.row(), flush=True)
        failures += [f"{name}: {failure}" for failure in outcome.failures]
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
