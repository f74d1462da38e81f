"""The command line behind `./lab`: one module a verb in lab/verbs/, and what the verbs share beside it."""
