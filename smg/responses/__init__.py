"""The items of the Responses API: their shapes and rules, without I/O."""
