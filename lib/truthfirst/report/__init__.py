"""The report: one HTML file and one PDF made from what is stored, without a model and without a GPU.

    python -m truthfirst.report --out report

    data/results/*.parquet, figures/*  ->  findings, tables, grids, provenance  ->  document  ->  html, pdf

No number in it is typed by hand: findings.py computes every sentence from stored rows, and what is not stored is named
with the command that stores it. Equal stored results give equal bytes.
"""
