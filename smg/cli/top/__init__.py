"""`smg top`: the workers of a running gateway, live in the terminal or once through a pipe."""
