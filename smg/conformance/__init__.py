"""What the engine contract promises, as checks that run against any servicer: `smg conformance` and our own tests."""
