"""How fast an env goes here: every candidate in its own process, compared in turns.

benchmark                one comparison per number of envs: built, timed, closed
  candidate_process      one candidate in its own process
    candidate_env        what runs there; it builds the envs with `libraries`
  measure                turns, rounds and rates
results · recommend      turns -> figures -> the layout to use
console · json_report · html_report      the same report as text, JSON and a page
"""
