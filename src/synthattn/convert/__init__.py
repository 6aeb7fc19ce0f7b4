"""Replace the attention inside models that people already have, and save and load the result."""

from synthattn.convert.folder import from_pretrained
from synthattn.convert.replace import attention_layers, replace_attention, restore

__all__ = ["attention_layers", "from_pretrained", "replace_attention", "restore"]
