"""Studies: tidy frames out of environments, policies and traces."""
