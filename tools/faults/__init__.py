"""Fault campaigns: feed damaged input to every entry point and count what happens.

``python -m tools.faults`` runs all campaigns and prints one row for each; ``--help`` shows how to choose a part.
A campaign is a module with a function ``run(count, seed)`` that returns an :class:`~tools.faults.outcome.Outcome`.
"""
