"""Scores, each with its exact definition."""
