"""Replace the attention inside models that people already have, and save and load the result."""

from synthattn.convert.conversion import Conversion, convert
from synthattn.convert.folder import from_pretrained
from synthattn.convert.replace import attention_layers, replace_attention, restore
from synthattn.convert.tuning import Tuning

__all__ = ["Conversion", "Tuning", "attention_layers", "convert", "from_pretrained", "replace_attention", "restore"]
