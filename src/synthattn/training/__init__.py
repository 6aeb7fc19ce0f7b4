"""Training, evaluation and generation: what is behind the commands of the same names."""
