"""The standard library of workflows: pure functions of JSON values, by subject."""
