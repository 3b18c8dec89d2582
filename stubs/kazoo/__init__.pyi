# What we use of kazoo, which brings no types of its own.
