"""Execution of softmax(B) V: one file for each way to compute it, and what these share."""
