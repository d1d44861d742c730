"""Realization: from parameters and a passage to words, tables, tools and a prompt."""
