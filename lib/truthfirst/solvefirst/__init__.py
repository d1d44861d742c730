"""The solve-first wing: sample and solve a mechanism, then wrap it as an agent environment."""
