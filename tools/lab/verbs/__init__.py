"""One module a verb. Each has HELP (one line, a string literal), add_arguments(parser) and run(args) -> exit code."""
