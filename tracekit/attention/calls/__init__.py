"""Attention calls: which ops and kernels make one, what its arguments say, and the figures that follow."""
