"""Tables and figures of evaluated and ranked teams as data, and the pages, viewer and studies that show them."""
