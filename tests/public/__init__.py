"""Three schemas that anybody can look up, with rows of our own, and a walk through the whole migration for each."""
