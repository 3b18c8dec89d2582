"""`tripstore experiment`: rewritten queries: what their experiments found, and who gets their answers."""
