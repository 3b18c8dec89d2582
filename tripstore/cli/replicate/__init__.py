"""`tripstore replicate`: a datastore that follows another one, and may lead in its place."""
