"""Questions about evidence, from request to answers with probabilities."""
