"""What a part of a function asks for, and the call of tripstore that answers it."""
