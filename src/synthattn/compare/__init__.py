"""The same model with several kinds of attention, side by side: what each is worth and what it costs."""
