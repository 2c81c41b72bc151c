"""What the pages are laid out from: charts, tables and markup, each a pure function of results."""
