"""How fast an env goes here: every candidate in its lane, raced in turns.

contest        one heat per number of envs
  heat         candidates of one size: built, raced, closed
    lane       one candidate in its own process  (lane_main: its inside, which
               builds by one of libraries/)
    measure    turns, rounds and rates
accounts       turns -> figures · results · recommend
console · document · picture      the same report as text, JSON and a page
"""
