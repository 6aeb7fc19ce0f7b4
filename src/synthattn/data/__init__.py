"""Examples: sources, tokenizers, batches. Nothing in here knows tasks or models."""
