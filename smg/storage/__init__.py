"""Where responses and conversations are kept: one interface, one file a backend."""
