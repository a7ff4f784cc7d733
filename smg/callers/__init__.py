"""Who calls, and what that opens: authenticators by what they take, and the rules on who may call what."""
