"""What each ORM calls the tables of its models, and how its code reaches them."""
