"""How the files of a code base are found and read, and Python of any version as trees."""
