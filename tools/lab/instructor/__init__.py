"""What only instructors need. A release leaves this package out."""
