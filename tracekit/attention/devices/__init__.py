"""What a device can do at most, and what a kernel asks of it: its blocks, its product, its number format."""
