"""What this machine can do: processors, memory, precision, installed extras. Measured, not guessed."""
