"""Training, evaluation and generation, the code behind the commands of these names."""
