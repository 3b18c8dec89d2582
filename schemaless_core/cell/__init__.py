"""The vocabulary: cells and their bytes, keys and shards, what calls ask for and answer, as whom a store is used."""
