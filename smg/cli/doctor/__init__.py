"""`smg doctor`: what is wrong with a worker or a running router, in words, and what to do about it."""
