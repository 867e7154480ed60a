"""Questions that SQL can't say, one file each: a Store and parameters to a Table."""
