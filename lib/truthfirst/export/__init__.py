"""Tasks in the formats of other harnesses."""
