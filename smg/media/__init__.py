"""Media of prompts: where a client may have them fetched from, what they cost, and what a model's processor makes of them."""
