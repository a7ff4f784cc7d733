"""From a request message to its answer, one readable pipeline a file."""
