"""What happens to clients when workers die, freeze, or when other clients behave badly."""
