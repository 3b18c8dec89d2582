"""Jobs: work in parts that processes claim, hold, save and give back; what they found, and what is told of them."""
