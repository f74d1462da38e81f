"""The verbs: each is one module, found by its file name, in the folder of those who use it.

It has HELP (one line, a text literal) and the functions add_arguments(parser) and run(args) -> exit
code. Nothing below imports a verb.
"""
