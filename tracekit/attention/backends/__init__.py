"""Why a call of SDPA ran on its backend: the rules by which backends refuse, and the verdict and remedies they give."""
