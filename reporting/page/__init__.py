"""Self-contained HTML pages: template, style, sortable tables and interactive charts.

This package knows nothing about challenges: a page is an `HtmlPage` of sections, whose HTML comes from `html` and
`charts`. The scripts in this folder sort the tables, draw the charts in the browser and keep the selection.
"""
