"""Pure rules: tokens, patterns, policy text, entities."""
