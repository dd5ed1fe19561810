"""What a task costs in tokens of context: tasks with known right calls, replayed without a model."""
