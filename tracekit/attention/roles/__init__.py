"""What a piece of work does in the model: its place, what only order and shapes tell, and the role that follows."""
