"""What decisions cost, and what they are worth."""
