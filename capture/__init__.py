"""Recording on the GPU box: the only room that may import torch."""
