"""Encoder models: embedders and classifiers of the BERT family, beside the chat model or alone."""
