"""Warehouse reconciliation: dimensions and monthly sales over CSV, TSV, JSON and SQLite, put right and summed up."""
