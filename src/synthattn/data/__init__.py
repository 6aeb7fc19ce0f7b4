"""Data sources, tokenizers and batches; this package knows neither tasks nor models."""
