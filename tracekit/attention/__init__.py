"""What work means: kernel families, places in the model, roles; its knowledge lies in TOML beside what reads it.

`tables.give_meaning(linked)` gives the finished tables of one trace. Nothing is imported here, nor in the rooms of this
one, since questions need little of them.
"""
