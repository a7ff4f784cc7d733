"""What Envoy in front of gateways costs, and what it is good for."""
