"""The verbs: each is one module here, found by its file name.

It has HELP (one line) and GROUP (one of GROUPS of ../main.py), both text literals, and the functions
add_arguments(parser) and run(args) -> exit code.
"""
