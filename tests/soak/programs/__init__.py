"""Random programs: what a user could write, held against loops written by hand.

    python -m tests.soak.programs --count 1000
    python -m tests.soak.programs --only 4711

A program is drawn from its seed: a kind of environment, an API, where the environments
run, options, and what is called in which order. The same calls are made on one
environment per slot, alone, in a plain loop; every row has to be the same, bit for bit.
::

    seed ─► Program ─► play ─► API ──► rows ┐
                          └──► truth ─ rows ┴─► mistakes

Programs run in a process of their own, which another one watches: a program that hangs
is a failure, and so is one that leaves anything behind.
"""
