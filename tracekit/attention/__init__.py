"""What work means: kernel families, places in the model, roles; its knowledge lies in TOML beside it.

`tables.give_meaning(linked)` gives the finished tables of one trace. Nothing is imported here, since questions need
little of this room.
"""
