"""Tables, charts and pages: one form of each for the terminal, Markdown and HTML. Nothing here knows what they show."""
