"""One training run and its folder, for any learner."""
