"""``generate`` with caches that keep keys only for some layers, and with the length penalty of GNMT."""

from typing import Any, Literal

from synthattn.models.cache import BeamSearchCache, decoder_cache
from synthattn.models.compat import GenerationMixin
from synthattn.models.stack import Stack


class GnmtPenalty(float):
    """The exponent of a length penalty that divides scores by ``((5 + length) / 6) ** alpha`` (Wu et al. 2016).

    Beam search divides by ``length ** length_penalty``. With this object as the exponent, Python computes the formula.
    """

    def __rpow__(self, length: float | int, modulo: None = None) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        return ((5 + length) / 6) ** float(self)


class SynthesizerGenerationMixin(GenerationMixin):
    """Generation with caches that keep keys only for layers that read them."""

    def generate(
        self, *args: Any, length_penalty_form: Literal["huggingface", "gnmt"] = "huggingface", **kwargs: Any
    ) -> Any:
        """Generate tokens, with the arguments of ``GenerationMixin.generate`` and a choice of the length penalty.

        For ``length_penalty=alpha``, beam search divides a score by ``length ** alpha`` as in transformers, or with
        ``length_penalty_form="gnmt"`` by ``((5 + length) / 6) ** alpha``, as in the paper's translation runs.
        """
        if length_penalty_form not in ("huggingface", "gnmt"):
            raise ValueError(f"length_penalty_form must be 'huggingface' or 'gnmt', got {length_penalty_form!r}")
        if length_penalty_form == "gnmt":
            given = kwargs.get("generation_config", args[1] if len(args) > 1 else None)
            chosen = [kwargs.get("length_penalty")]
            chosen += [getattr(config, "length_penalty", None) for config in (given, self.generation_config)]
            kwargs["length_penalty"] = GnmtPenalty(next((p for p in chosen if p is not None), 1.0))
        return super().generate(*args, **kwargs)  # pyright: ignore[reportAttributeAccessIssue]

    def _prepare_cache_for_generation(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any
    ) -> None:
        kind = generation_config.cache_implementation
        if kind not in (None, "dynamic"):
            raise ValueError(f"cache_implementation={kind!r} is not supported; leave it out, or give past_key_values")
        if self.training and self.is_gradient_checkpointing:  # pyright: ignore[reportAttributeAccessIssue]
            # Checkpointed layers get no cache: each token would be decoded without the earlier tokens.
            generation_config.use_cache = model_kwargs["use_cache"] = False
            model_kwargs.pop("past_key_values", None)
            return
        cache = model_kwargs.get("past_key_values")
        if cache is None and generation_config.use_cache is False:
            return
        decoder: Stack = self.get_decoder()  # pyright: ignore[reportAttributeAccessIssue]
        own, cross = decoder.keeps_keys, decoder.cross_keeps_keys
        beams = generation_config.num_beams or 1
        if cache is None and cross and beams > 1:
            model_kwargs["past_key_values"] = BeamSearchCache(own, cross, beams)
        else:
            model_kwargs["past_key_values"] = decoder_cache(cache, own, cross)
