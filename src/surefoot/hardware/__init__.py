"""What nodes are and what their hardware should deliver: records of their facts, and what follows from them. Pure."""
