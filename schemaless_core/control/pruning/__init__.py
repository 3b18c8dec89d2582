"""What goes out of the control database after its time: by portions, by whichever worker's turn it is."""
