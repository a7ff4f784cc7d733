"""From a model's text to content, reasoning and calls, piece by piece."""
