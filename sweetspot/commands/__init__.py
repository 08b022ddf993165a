"""What users type: each command parses, calls, prints."""
