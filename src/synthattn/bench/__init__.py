"""Speed and memory, side by side: our attention and what one would use instead, on this machine."""
