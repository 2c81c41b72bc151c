"""The page of a report: what it shows (`view`), its words, its sections, its drawings. Pure."""
