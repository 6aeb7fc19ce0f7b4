"""Speed and memory, side by side: our attention against what one would use instead, on the machine at hand."""
