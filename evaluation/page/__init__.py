"""Self-contained HTML pages: template, style, sortable tables and interactive charts."""
