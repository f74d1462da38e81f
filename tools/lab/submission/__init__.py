"""How a submission is taken, compiled, audited and run: for ./lab grade and ./lab submit."""
