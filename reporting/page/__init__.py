"""Self-contained HTML pages: template, style, sortable tables and interactive charts.

This room knows nothing about challenges: a page is a `Document` of sections, whose HTML comes from `tables`
and `charts`. The scripts beside this file sort the tables, draw the charts in the browser and keep the selection.
"""
