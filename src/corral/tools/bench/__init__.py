"""How fast an env goes here: every candidate in its own process, raced in turns.

benchmark              one comparison per number of envs
  comparison           candidates of one size: built, raced, closed
    candidate_process  one candidate in its own process  (candidate_main: its inside,
                       which builds by one of libraries/)
    measure            turns, rounds and rates
turn_figures           turns -> figures · results · recommend
console · json_report · html_report      the same report as text, JSON and a page
"""
