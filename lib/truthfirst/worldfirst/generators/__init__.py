"""The generators: one folder each, one file a role (`worldfirst/contract.py` states the roles)."""

GENERATORS = {  # name of the folder -> domain
    "warehouse": "data and analytics engineering",
    "sessions": "data and analytics engineering",
    "shards": "AI engineering and research",
    "runs": "AI engineering and research",
}
