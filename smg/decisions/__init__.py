"""Typed answers out of a language model's scores: prompts, labels and formulas. Pure: plain values in and out."""
