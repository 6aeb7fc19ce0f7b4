"""What a comparison found, as data, as tables and as a page to look at."""
