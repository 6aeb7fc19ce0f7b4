"""Execute ``softmax(logits) @ values``: one file per backend, and what backends share.

A backend is a module whose function ``attend`` takes a :class:`~synthattn.engine.call.Call` and returns the heads, or
None if it declines. Nothing here knows a synthesizer or a layer.

:mod:`synthattn.shapes` is the legend of all axes. *Batch-major* tensors are ``(batch, heads, k, width)``.
*Feature-major* tensors are ``(heads, width * batch, k)``: all keys of a feature of one example follow each other in
memory.
"""
