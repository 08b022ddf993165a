"""What a person looks at: tables and figures, made from results, never from a model."""
