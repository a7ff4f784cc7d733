"""What placing a request costs."""
