"""What a part of a function writes, by which transaction, and which objects are loaded anew after it."""
