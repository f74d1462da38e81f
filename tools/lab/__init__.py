"""The command line behind `./lab`: one module for each verb in lab/verbs/, and what they share."""
