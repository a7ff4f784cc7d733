"""What a gateway costs: CPU time per streamed token and per request, ours beside the original's."""
