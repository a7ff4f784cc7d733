"""The OpenAPI document: what each path takes and answers, made from the shapes and rules that check requests."""
